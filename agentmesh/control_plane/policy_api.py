"""The policy over HTTP: what an admin writes, what members are served."""

import logging
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from agentmesh.control_plane.callers import Callers
from agentmesh.control_plane.herald import Herald
from agentmesh.control_plane.http import answer, read_message
from agentmesh.control_plane.operations import Door, Operation
from agentmesh.control_plane.policy.compile import check_budget, rules
from agentmesh.control_plane.policy.document import parse_policy, policy_document
from agentmesh.control_plane.policy.errors import PolicyError
from agentmesh.control_plane.policy.model import Policy
from agentmesh.control_plane.refusals import bad_request
from agentmesh.control_plane.store import Store
from agentmesh.wire.messages.mesh.v1 import (
    PolicyConfig,
    PolicyConfigGetResponse,
    PolicyConfigUpdateResponse,
    RevocationsResponse,
)
from agentmesh.wire.plain import from_plain, to_plain

logger = logging.getLogger(__name__)


class PolicyApi:
    """The policy's part of the interface."""

    def __init__(self, store: Store, herald: Herald, callers: Callers) -> None:
        self._store, self._herald, self._callers = store, herald, callers
        self._of, self._rules = Policy(), list[str]()  # as last compiled

    def operations(self) -> Sequence[Operation]:
        replace = [
            Operation(
                method=method,
                path="/policies",
                handle=self.replace,
                summary="Put another policy in the place of the one in force.",
                door=Door.ADMIN,
                takes=PolicyConfig,
                gives=PolicyConfigUpdateResponse,
                refusals=(401, 403),
            )
            for method in ("PUT", "POST")
        ]
        return [
            *replace,
            Operation(
                method="GET",
                path="/policies",
                handle=self.serve_rules,
                summary="The policy in force as rules of Datalog, for members that serve others.",
                door=Door.MEMBER,
                gives=PolicyConfigGetResponse,
                refusals=(401, 403),
            ),
            Operation(
                method="GET",
                path="/revocations",
                handle=self.revocations,
                summary="Which peers are out.",
                door=Door.MEMBER,
                gives=RevocationsResponse,
                refusals=(401, 403),
            ),
            Operation(
                method="GET",
                path="/admin/policy",
                handle=self.show,
                summary="The policy in force, as it was written.",
                door=Door.ADMIN,
                gives=PolicyConfig,
                refusals=(401, 403),
            ),
        ]

    async def replace(self, request: Request) -> Response:
        message = await read_message(request, PolicyConfig)
        try:
            policy = parse_policy(to_plain(message))
            check_budget(policy)
        except PolicyError as exc:
            raise bad_request(str(exc)) from exc
        await self._herald.put_policy(policy)
        logger.info("policy replaced", extra={"roles": len(policy.roles), "bindings": len(policy.bindings)})
        return answer(request, PolicyConfigUpdateResponse(success=True))

    async def show(self, request: Request) -> Response:
        return answer(request, from_plain(PolicyConfig, policy_document(await self._store.access.policy())))

    async def serve_rules(self, request: Request) -> Response:
        await self._callers.member(request, "policies")
        policy = await self._store.access.policy()
        if policy is not self._of:
            self._of, self._rules = policy, rules(policy)
        return answer(request, PolicyConfigGetResponse(datalog_rules=self._rules))

    async def revocations(self, request: Request) -> Response:
        await self._callers.member(request, "revocations")
        banned = (await self._store.mirror.look()).banned
        return answer(request, RevocationsResponse(banned_peer_ids=sorted(banned)))
