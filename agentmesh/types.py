"""The values that every layer shares: peer IDs, protocol IDs, addresses. Frozen, hashable, canonical."""

import functools
from typing import Any, NewType, Self

import attrs
import base58
import idna
import multibase  # pyright: ignore[reportMissingTypeStubs]
from multiaddr import Multiaddr
from multiaddr.exceptions import Error as MultiaddrError

from agentmesh.errors import AddressError

ProtocolId = NewType("ProtocolId", str)

MULTIBASE: Any = multibase  # it has no types of its own

IDENTITY_ED25519 = bytes.fromhex("002408011220")  # identity multihash, 36 bytes: key type Ed25519, 32 bytes of key
CID_PREFIX = bytes.fromhex("0172")  # CID version 1, codec libp2p-key
MULTIHASHES = {  # how a peer ID may begin, and how long it is then; anything else would be one peer under two IDs
    IDENTITY_ED25519: 38,
    bytes.fromhex("002508021221"): 39,  # identity multihash, 37 bytes: key type Secp256k1, 33 bytes of key
    bytes.fromhex("1220"): 34,  # sha2-256 multihash of any longer key
}
MAX_PEER_ID_CHARS = 400  # base 2 takes 321; base 58 is decoded in quadratic time
MAX_ADDRESS_CHARS = 2048
MAX_ADDRESS_BYTES = 1024


@attrs.frozen(order=True, repr=False)
class PeerId:
    """Who a peer is: the multihash of its public key (libp2p specification "peer-ids").

    One peer has one PeerId however it was spelt: `parse` takes base58btc and CIDv1 spellings, `str` gives base58btc.
    """

    multihash: bytes

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read any spelling of a peer ID.

        Raises:
            AddressError: `text` is no peer ID.
        """
        return cls(_multihash_of(text))

    @classmethod
    def from_bytes(cls, multihash: bytes) -> Self:
        """Take the multihash as it comes in a message.

        Raises:
            AddressError: `multihash` is none of a key.
        """
        if not _is_of_a_key(multihash):
            raise AddressError(f"not a peer ID: {multihash[:40].hex()}")
        return cls(multihash)

    @classmethod
    def from_ed25519(cls, public_key: bytes) -> Self:
        """The ID of a raw 32-byte Ed25519 public key."""
        if len(public_key) != 32:
            raise AddressError("an Ed25519 public key is 32 bytes")
        return cls(IDENTITY_ED25519 + public_key)

    @property
    def ed25519(self) -> bytes | None:
        """The raw public key that the ID carries inline, or None when it is of another kind."""
        inline = self.multihash.startswith(IDENTITY_ED25519) and len(self.multihash) == 38
        return self.multihash[6:] if inline else None

    @property
    def dns_label(self) -> str:
        """The CIDv1 base36 spelling: 62 lower-case characters, so it fits a host name."""
        label: bytes = MULTIBASE.encode("base36", CID_PREFIX + self.multihash)
        return label.decode()

    def __str__(self) -> str:
        return _spelt(self.multihash)

    def __repr__(self) -> str:
        return f"PeerId({self})"


def _is_of_a_key(multihash: bytes) -> bool:
    return any(multihash.startswith(head) and len(multihash) == size for head, size in MULTIHASHES.items())


@functools.lru_cache(maxsize=4096)
def _spelt(multihash: bytes) -> str:
    return base58.b58encode(multihash).decode()


@functools.lru_cache(maxsize=4096)
def _multihash_of(text: str) -> bytes:
    try:
        multihash = _decoded(text) if len(text) <= MAX_PEER_ID_CHARS else b""
    except Exception as exc:  # the decoders raise whatever their alphabet tables raise
        raise AddressError(f"not a peer ID: {text[:80]!r}") from exc
    if not _is_of_a_key(multihash):
        raise AddressError(f"not a peer ID: {text[:80]!r}")
    return multihash


def _decoded(text: str) -> bytes:
    if text.startswith(("1", "Qm")):
        return base58.b58decode(text)
    cid: bytes = MULTIBASE.decode(text)
    return cid[len(CID_PREFIX) :] if cid.startswith(CID_PREFIX) else b""


@attrs.frozen(repr=False)
class Address:
    """Where a peer is: a multiaddr (libp2p specification "addressing"), kept in canonical text.

    `Address.parse("/ip4/127.0.0.1/tcp/4001/p2p/12D3...")`; equal addresses compare equal whatever spelling of numbers,
    of a name or of the peer ID they came with.
    """

    parts: tuple[tuple[str, str | None], ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises AddressError when `text` is not a multiaddr."""
        return cls(_parts_of(text))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Raises AddressError when `data` is not a binary multiaddr."""
        if len(data) > MAX_ADDRESS_BYTES:
            raise AddressError(f"a binary multiaddr of more than {MAX_ADDRESS_BYTES} bytes")
        try:
            text = str(Multiaddr(data))
        except Exception as exc:  # the codec raises ValueError, KeyError, struct.error… by what is wrong
            raise AddressError("not a binary multiaddr") from exc
        return cls.parse(text)

    def to_bytes(self) -> bytes:
        """The binary multiaddr."""
        data: bytes = Multiaddr(str(self)).to_bytes()
        return data

    @property
    def names(self) -> tuple[str, ...]:
        """The protocol names in order: ("ip4", "tcp", "ws")."""
        return tuple(name for name, _ in self.parts)

    def value(self, name: str) -> str | None:
        """The value of the first part called `name`, or None."""
        return next((value for part, value in self.parts if part == name), None)

    @property
    def peer(self) -> PeerId | None:
        """The peer at the end of the address: its last part, when that is /p2p/<id>."""
        if self.parts and self.parts[-1][0] == "p2p":
            return PeerId.parse(self.parts[-1][1] or "")
        return None

    def with_peer(self, peer: PeerId) -> "Address":
        """This address ending in /p2p/<peer>, whatever peer it ended in before."""
        return Address((*self.without_peer().parts, ("p2p", str(peer))))

    def without_peer(self) -> "Address":
        return Address(self.parts[:-1]) if self.peer is not None else self

    def __truediv__(self, suffix: str) -> "Address":
        """`address / "p2p-circuit"`: the address with more parts behind it."""
        return Address.parse(f"{self}/{suffix}")

    @property
    def tls_name(self) -> str | None:
        """Of `/<kind>/<host>/tcp/<port>/tls` or `…/tls/sni/<name>`, the name that TLS begins with (SNI).

        "" when there is none, only an IP address. None for any other address: there something else comes before TLS.
        """
        match self.without_peer().parts:
            case (_, ("tcp", _), ("tls", None), ("sni", str(name))):
                return ascii_name(name)
            case ((kind, str(host)), ("tcp", _), ("tls", None)):
                return ascii_name(host) if kind.startswith("dns") else ""
            case _:
                return None

    @property
    def circuit(self) -> "tuple[Address, PeerId | None] | None":
        """Of /…/p2p-circuit[/p2p/<peer>], the relay's address and the peer behind it; None for any other address."""
        if "p2p-circuit" not in self.names:
            return None
        at = len(self.parts) - 1 - self.names[::-1].index("p2p-circuit")
        behind = Address(self.parts[at + 1 :])
        return Address(self.parts[:at]), behind.peer

    def __str__(self) -> str:
        return _text_of(self.parts)

    def __repr__(self) -> str:
        return f"Address({str(self)!r})"


def ascii_name(name: str) -> str:
    """A host name out of an Address, as DNS, TLS and HTTP have it: `bücher.example` is `xn--bcher-kva.example`.

    The standard library's codec, which `ssl` uses, knows the rules of 2003, and raises for names that are good now.
    """
    return idna.encode(name, uts46=True).decode()


Parts = tuple[tuple[str, str | None], ...]


@functools.lru_cache(maxsize=4096)
def _parts_of(text: str) -> Parts:
    before, _, peer = text.rpartition("/p2p/")
    if before and "/" not in peer and len(text) <= MAX_ADDRESS_CHARS:
        last = ("p2p", str(PeerId.parse(peer)))
        return (*_parts_of(before), last)  # what is before is the same for many peers, and known
    parts = _read(text)
    canonical = tuple((name, _canonical(name, value)) for name, value in parts)
    # Some parts have no spelling that reads back: a path, a zone without a name.
    if not parts or _read(_text_of(canonical)) != canonical:
        raise AddressError(f"not an address: {text[:200]!r}")
    return canonical


def _read(text: str) -> Parts:
    """The parts as the codec has them; none when the text is too long for it."""
    try:
        items = Multiaddr(text).items() if len(text) <= MAX_ADDRESS_CHARS else ()
        return tuple((protocol.name, value) for protocol, value in items)
    except (MultiaddrError, ValueError, LookupError, TypeError) as exc:
        raise AddressError(f"not an address: {text[:200]!r}") from exc


def _text_of(parts: Parts) -> str:
    return "".join(f"/{name}" if value is None else f"/{name}/{value}" for name, value in parts)


def _canonical(name: str, value: str | None) -> str | None:
    if value is None:
        return None
    if name == "p2p":
        return str(PeerId.parse(value))
    return value.lower() if name.startswith("dns") else value
