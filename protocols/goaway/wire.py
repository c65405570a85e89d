"""The one message to and from bytes."""

from agentmesh.protocols.goaway.events import GoAway, Reason
from agentmesh.types import ProtocolId
from agentmesh.wire.codec import decode
from agentmesh.wire.durations import seconds_in, to_duration
from agentmesh.wire.messages.mesh.v1 import RouterGoAway, RouterGoAwayReason

GOAWAY_ID = ProtocolId("/mesh/goaway/1.0.0")

MAX_MESSAGE_BYTES = 1024
MAX_RETRY_AFTER = 30 * 86400.0  # seconds; what is more says no more

_NUMBERS = {
    Reason.UNSPECIFIED: RouterGoAwayReason.REASON_UNSPECIFIED,
    Reason.DRAINING: RouterGoAwayReason.DRAINING,
    Reason.OVERLOADED: RouterGoAwayReason.OVERLOADED,
}
_REASONS = {number: reason for reason, number in _NUMBERS.items()}


def encode_goaway(goaway: GoAway) -> bytes:
    return bytes(RouterGoAway(reason=_NUMBERS[goaway.reason], retry_after=to_duration(goaway.retry_after)))


def decode_goaway(data: bytes) -> GoAway:
    """A reason that is not known here is UNSPECIFIED. Raises RemoteProtocolError when `data` is no RouterGoAway."""
    message = decode(RouterGoAway, data)
    retry_after = seconds_in(message.retry_after, absent=0.0, at_most=MAX_RETRY_AFTER)
    return GoAway(_REASONS.get(message.reason, Reason.UNSPECIFIED), retry_after)
