"""What an admin decides about enrollments that wait."""

import logging
from collections.abc import Callable
from functools import partial
from http import HTTPStatus

from agentmesh.control_plane.authority import Authority
from agentmesh.control_plane.enrollment import Action, Input, decide, token_refusal
from agentmesh.control_plane.entitlement import entitle
from agentmesh.control_plane.members import token_member
from agentmesh.control_plane.records import BootstrapToken, Enrollment, EnrollmentRequest
from agentmesh.control_plane.refusals import RefusedError, forbidden
from agentmesh.control_plane.store import Store, until_settled

logger = logging.getLogger(__name__)

BANNED = "the peer, or the owner of its bootstrap token, is banned"


class Approvals:
    """Every call raises StoreError when the database does not answer.

    Args:
        wall_clock: gives the seconds since 1970.
    """

    def __init__(self, store: Store, authority: Authority, wall_clock: Callable[[], float]) -> None:
        self._store, self._authority, self._wall_clock = store, authority, wall_clock

    async def approve(self, enrollment_id: int) -> None:
        """Admit the peer. It finds its credential when it polls next.

        Raises:
            RefusedError: 403 the peer or the token's owner is banned, or the policy does not allow a label; 404 no such
                enrollment; 409 it is resolved already; 410 its bootstrap token admits nobody any more.
        """
        await until_settled(partial(self._approve_once, enrollment_id))

    async def _approve_once(self, enrollment_id: int) -> None:
        seen, token = await self._open_enrollment(enrollment_id, Input.APPROVE)
        if refusal := token_refusal(token, self._wall_clock()):
            raise RefusedError(HTTPStatus.GONE, refusal)
        standing = await self._store.access.standing(seen.peer, seen.token_id)
        owner = token_member(seen.peer, standing)
        entitlement = entitle(standing.policy, seen.role, owner, seen.labels)
        refusal = BANNED if standing.banned or standing.token_banned else entitlement.label_refusal
        if refusal := refusal or entitlement.budget_refusal:
            raise forbidden(refusal)
        name = f"approval of {seen.id}"
        issue = self._authority.issue(seen.peer, seen.role, seen.labels, name, facts=entitlement.facts)
        request = EnrollmentRequest(seen.peer, seen.token_id, seen.role, seen.labels)
        await self._store.grant(request, seen, issue, self._wall_clock(), owner)
        logger.info("enrollment approved", extra={"peer": seen.peer, "role": seen.role, "enrollment": seen.id})

    async def reject(self, enrollment_id: int) -> None:
        """Turn the peer away. Raises RefusedError: 404 no such enrollment, 409 it is resolved already."""
        await until_settled(partial(self._reject_once, enrollment_id))

    async def _reject_once(self, enrollment_id: int) -> None:
        seen, _ = await self._open_enrollment(enrollment_id, Input.REJECT)
        await self._store.reject(seen, self._wall_clock())
        logger.info("enrollment rejected", extra={"peer": seen.peer, "enrollment": seen.id})

    async def _open_enrollment(self, enrollment_id: int, given: Input) -> tuple[Enrollment, BootstrapToken | None]:
        found = await self._store.enrollment(enrollment_id)
        enrollment = found[0] if found else None
        match decide(enrollment, given):
            case Action.CONFLICT:
                raise RefusedError(HTTPStatus.CONFLICT, "the enrollment is resolved already")
            case Action.UNKNOWN:
                raise RefusedError(HTTPStatus.NOT_FOUND, "there is no such enrollment")
            case _:
                assert found is not None
                return found
