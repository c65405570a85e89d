"""The directory's values: what is asked, what is answered, and what comes out of its two machines."""

import enum

import attrs

from agentmesh.types import Address, PeerId

RECORD_TTL = 900.0  # seconds that a record is good for; nobody's lasts longer
DEFAULT_LIMIT = 20  # providers in an answer, when the asker does not say


@attrs.frozen
class Announcement:
    """What a provider says of itself under one key.

    Attributes:
        key: a sha2-256 multihash (`service_key`, `peer_key`).
        addresses: where it is; each ends in /p2p/<provider>.
        sequence: grows with each announcement of a provider; an older one never takes the place of a newer one.
        ttl: seconds that it is good for; 0 withdraws what was announced before.
    """

    key: bytes
    addresses: tuple[Address, ...] = ()
    sequence: int = 0
    ttl: float = RECORD_TTL


@attrs.frozen
class Provide:
    """Keep an announcement.

    Attributes:
        announcement: what to keep.
        provider: whose it is, when a router places it on another; None of the asker's own.
    """

    announcement: Announcement
    provider: PeerId | None = None


@attrs.frozen
class FindProviders:
    """Who has announced a key? At most `limit` of them."""

    key: bytes
    limit: int = DEFAULT_LIMIT


@attrs.frozen
class FindPeer:
    """Where is a peer?"""

    peer: PeerId


Request = Provide | FindProviders | FindPeer


class Status(enum.IntEnum):
    """How a request went."""

    OK = 1
    OUTDATED = 2  # the router holds a newer record
    LIMITED = 3  # a bound is reached; there may be room later
    UNAVAILABLE = 4  # the routers that would know could not be asked


@attrs.frozen
class Found:
    """One provider of a key, or one peer.

    Attributes:
        peer: who.
        addresses: where it says it is; each ends in /p2p/<peer>. A dial proves who is there.
        sequence: of its record; 0 when a router says it of its own knowledge.
        ttl: seconds that this is still good for.
    """

    peer: PeerId
    addresses: tuple[Address, ...] = ()
    sequence: int = 0
    ttl: float = 0.0


@attrs.frozen
class Answer:
    """A router's answer.

    Attributes:
        status: how it went.
        found: what was looked for; nothing is an answer too.
        sequence: of OUTDATED, that of the newer record.
        retry_after: seconds, of LIMITED.
        placed: of Provide, how many routers hold the record.
    """

    status: Status = Status.OK
    found: tuple[Found, ...] = ()
    sequence: int = 0
    retry_after: float = 0.0
    placed: int = 0


@attrs.frozen
class Requested:
    """A request that waits for `send_answer`."""

    request: Request


@attrs.frozen
class Answered:
    """The answer to what was asked. The machine is finished."""

    answer: Answer


@attrs.frozen
class PeerLeft:
    """The stream ended before its request was complete. The machine is finished."""


@attrs.frozen
class TimedOut:
    """The peer's message did not come in time. The machine is finished."""


AnswererEvent = Requested | PeerLeft | TimedOut
AskerEvent = Answered | TimedOut
