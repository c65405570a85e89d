"""Identify's message to and from bytes (libp2p specification "identify")."""

from collections.abc import Iterable, Iterator

from agentmesh.errors import AddressError
from agentmesh.identity import peer_of, public_key_of
from agentmesh.protocols.identify.events import PeerInfo
from agentmesh.types import Address, ProtocolId
from agentmesh.wire.codec import decode
from agentmesh.wire.messages.libp2p.identify import Identify

IDENTIFY_ID = ProtocolId("/ipfs/id/1.0.0")

MAX_STREAMS_PER_PEER = 8  # that may ask us at once; one would do
MAX_MESSAGE_BYTES = 64 * 1024
MAX_ADDRESSES = 64  # of a peer that are taken, or sent
MAX_PROTOCOLS = 256  # of a peer that are taken
MAX_PROTOCOL_CHARS = 256  # of one protocol's name; longer ones are left out
MAX_VERSION_CHARS = 256  # of a version that are kept


def encode_info(info: PeerInfo) -> bytes:
    """Addresses are sent without the peer's own /p2p part, as the specification has them."""
    return bytes(
        Identify(
            public_key=info.public_key,
            listen_addrs=[address.without_peer().to_bytes() for address in info.addresses[:MAX_ADDRESSES]],
            protocols=list(info.protocols),
            observed_addr=info.observed.to_bytes() if info.observed else None,
            protocol_version=info.protocol_version,
            agent_version=info.agent_version,
        )
    )


def decode_info(data: bytes) -> PeerInfo:
    """Raises RemoteProtocolError when `data` is no Identify message, or one without a key.

    Addresses that cannot be read are left out: the peer may speak transports that are news to us.
    """
    message = decode(Identify, data)
    key = public_key_of(message.public_key or b"")
    observed = tuple(_addresses_in([message.observed_addr or b""]))
    return PeerInfo(
        peer=peer_of(key),
        public_key=message.public_key or b"",
        addresses=tuple(_addresses_in(message.listen_addrs[:MAX_ADDRESSES])),
        protocols=tuple(_protocols_in(message.protocols[:MAX_PROTOCOLS])),
        observed=observed[0] if observed else None,
        protocol_version=(message.protocol_version or "")[:MAX_VERSION_CHARS],
        agent_version=(message.agent_version or "")[:MAX_VERSION_CHARS],
    )


def _addresses_in(addresses: Iterable[bytes]) -> Iterator[Address]:
    for data in addresses:
        try:
            yield Address.from_bytes(data)
        except AddressError:
            continue


def _protocols_in(names: Iterable[str]) -> Iterator[ProtocolId]:
    return (ProtocolId(name) for name in names if len(name) <= MAX_PROTOCOL_CHARS)
