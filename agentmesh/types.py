"""The values that every layer shares: peer IDs, protocol IDs, addresses. Frozen, hashable, canonical."""

import functools
from typing import NewType, Self

import attrs
import base58
import multibase  # pyright: ignore[reportMissingTypeStubs]
from multiaddr import Multiaddr
from multiaddr.exceptions import Error as MultiaddrError

from agentmesh.errors import AddressError

ProtocolId = NewType("ProtocolId", str)

IDENTITY_ED25519 = bytes.fromhex("002408011220")  # identity multihash, 36 bytes: key type Ed25519, 32 bytes of key
CID_PREFIX = bytes.fromhex("0172")  # CID version 1, codec libp2p-key
MAX_PEER_ID_BYTES = 64  # sha2-256 IDs of other key types are 34, identity IDs 38


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
        return multibase.encode("base36", CID_PREFIX + self.multihash).decode()

    def __str__(self) -> str:
        return base58.b58encode(self.multihash).decode()

    def __repr__(self) -> str:
        return f"PeerId({self})"


@functools.lru_cache(maxsize=4096)
def _multihash_of(text: str) -> bytes:
    try:
        if text.startswith(("1", "Qm")):
            multihash = base58.b58decode(text)
        else:
            cid: bytes = multibase.decode(text)
            if not cid.startswith(CID_PREFIX):
                raise ValueError("not a CIDv1 of a libp2p key")
            multihash = cid[len(CID_PREFIX) :]
    except Exception as exc:  # the decoders raise whatever their alphabet tables raise
        raise AddressError(f"not a peer ID: {text[:80]!r}") from exc
    if not 34 <= len(multihash) <= MAX_PEER_ID_BYTES or multihash[1] != len(multihash) - 2:
        raise AddressError(f"not a peer ID: {text[:80]!r}")
    return multihash


@attrs.frozen(repr=False)
class Address:
    """Where a peer is: a multiaddr (libp2p specification "addressing"), kept in canonical text.

    `Address.parse("/ip4/127.0.0.1/tcp/4001/p2p/12D3...")`; equal addresses compare equal whatever spelling of the
    peer ID they came with.
    """

    parts: tuple[tuple[str, str | None], ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises AddressError when `text` is not a multiaddr."""
        return cls(_parts_of(text))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Raises AddressError when `data` is not a binary multiaddr."""
        try:
            text = str(Multiaddr(data))
        except Exception as exc:  # the codec raises ValueError, KeyError, struct.error… by what is wrong
            raise AddressError("not a binary multiaddr") from exc
        return cls.parse(text)

    def to_bytes(self) -> bytes:
        return Multiaddr(str(self)).to_bytes()

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
    def circuit(self) -> "tuple[Address, PeerId | None] | None":
        """Of /…/p2p-circuit[/p2p/<peer>], the relay's address and the peer behind it; None for any other address."""
        if "p2p-circuit" not in self.names:
            return None
        at = len(self.parts) - 1 - self.names[::-1].index("p2p-circuit")
        behind = Address(self.parts[at + 1 :])
        return Address(self.parts[:at]), behind.peer

    def __str__(self) -> str:
        return "".join(f"/{name}" if value is None else f"/{name}/{value}" for name, value in self.parts)

    def __repr__(self) -> str:
        return f"Address({str(self)!r})"


@functools.lru_cache(maxsize=4096)
def _parts_of(text: str) -> tuple[tuple[str, str | None], ...]:
    try:
        items = [(protocol.name, value) for protocol, value in Multiaddr(text).items()]
    except (MultiaddrError, ValueError, LookupError, TypeError) as exc:
        raise AddressError(f"not an address: {text[:200]!r}") from exc
    return tuple((name, str(PeerId.parse(value)) if name == "p2p" and value else value) for name, value in items)
