"""What a router relays, under the names libp2p_relaysvc_* that relays of libp2p have."""

from collections.abc import Iterator, Mapping

from agentmesh.membership.pages import Family
from agentmesh.protocols.relay import Relay, Status

RELAY_PREFIX = "libp2p_relaysvc"
REASONS = {  # of refusals; what else is answered is an error
    Status.RESERVATION_REFUSED: "ip constraint violation",
    Status.RESOURCE_LIMIT_EXCEEDED: "resource limit exceeded",
    Status.PERMISSION_DENIED: "permission denied",
    Status.NO_RESERVATION: "no reservation",
    Status.MALFORMED_MESSAGE: "malformed message",
}


def relay_families(relay: Relay) -> Iterator[Family]:
    """Every one of them, from the start."""
    found = relay.statistics()
    first = found.granted - found.renewed
    reservations = {"opened": first, "renewed": found.renewed, "closed": max(first - found.reservations, 0)}
    for_circuits = {status: count - found.reservation_refusals[status] for status, count in found.refusals.items()}
    circuits = {"opened": found.opened, "closed": found.closed}
    yield Family("status", "1: the relay serves.", 1)
    for name, text, value, label in (
        ("reservations", "Reservations.", reservations, "type"),
        ("connections", "Circuits.", circuits, "type"),
        *_answers("reservation", found.granted, found.reservation_refusals),
        *_answers("connection", found.opened, for_circuits),
    ):
        yield Family(name, text, value, (label,), counts=True)
    yield Family("data_transferred_bytes", "Bytes of all circuits, both ways.", found.relayed_bytes, counts=True)


def _answers(
    what: str, granted: int, refusals: Mapping[Status, int]
) -> Iterator[tuple[str, str, Mapping[str, int], str]]:
    rejected = {reason: refusals.get(status, 0) for status, reason in REASONS.items()}
    errors = sum(refusals.values()) - sum(rejected.values())
    answers = {"ok": granted, "rejected": sum(rejected.values()), "error": errors}
    yield f"{what}_request_response_status", f"Answers to requests for a {what}.", answers, "status"
    yield f"{what}_rejections", f"Requests for a {what} that were refused.", rejected, "reason"
