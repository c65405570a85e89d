"""What comes out of identify's machine."""

import attrs

from agentmesh.types import Address, PeerId, ProtocolId


@attrs.frozen
class PeerInfo:
    """What a peer says of itself."""

    peer: PeerId
    public_key: bytes  # in libp2p's encoding; `peer` is made of it
    addresses: tuple[Address, ...] = ()  # where it listens
    protocols: tuple[ProtocolId, ...] = ()
    observed: Address | None = None  # where it sees the one it tells
    protocol_version: str = ""
    agent_version: str = ""


@attrs.frozen
class PeerIdentified:
    """The peer's message. The machine is finished."""

    info: PeerInfo


@attrs.frozen
class TimedOut:
    """It did not come in time. The machine is finished."""


IdentifyEvent = PeerIdentified | TimedOut
