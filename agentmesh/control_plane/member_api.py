"""What members and routers call."""

from collections.abc import Sequence

import trio
from starlette.requests import Request
from starlette.responses import Response

from agentmesh.control_plane.authority import Authority
from agentmesh.control_plane.config import Config
from agentmesh.control_plane.http import (
    NO_STORE,
    PROTOBUF,
    answer,
    bearer_credential,
    credential,
    proof_in_headers,
    read_message,
    wants_json,
)
from agentmesh.control_plane.info import InfoPage
from agentmesh.control_plane.leases import Leases
from agentmesh.control_plane.members import NO_ENROLLMENT, Members
from agentmesh.control_plane.operations import Door, Operation, Parameter
from agentmesh.control_plane.ratelimit import TokenBucket
from agentmesh.control_plane.refusals import too_many_requests
from agentmesh.control_plane.renewals import Renewals
from agentmesh.wire.messages.mesh.v1 import (
    BootstrapEnrollRequest,
    BootstrapEnrollResponse,
    ControlPlaneInfoResponse,
    EnrollResponse,
    KeysResponse,
    RouterLeaseRequest,
    RouterLeaseResponse,
    TokenRefreshRequest,
    TokenRefreshResponse,
)

ENROLL_RETRY_AFTER = 2  # seconds that a caller is to wait when too many enroll

PEER_ID = Parameter("peer_id", "Whose enrollment, in any spelling of a peer ID.")


class EnrollLimit:
    """One bucket for all that leads into the mesh."""

    def __init__(self, config: Config) -> None:
        self._bucket = TokenBucket(config.enroll_rate, config.enroll_burst)

    def take(self) -> None:
        """Raises RefusedError (429) when too many enroll at once."""
        if not self._bucket.take(trio.current_time()):
            raise too_many_requests("too many enroll at once; try again later", ENROLL_RETRY_AFTER)


def with_routers(request: Request, message: BootstrapEnrollResponse | EnrollResponse, info: InfoPage) -> Response:
    """A message with a credential, and where the routers are for whoever has it."""
    if wants_json(request):
        message.router_addresses = info.router_addresses()
        return credential(request, message)
    # Fields of a message may come in any order: those that are the same for everybody are encoded already.
    return Response(bytes(message) + info.encoded_addresses(type(message)), media_type=PROTOBUF, headers=NO_STORE)


class MemberApi:
    """Enrollment with a bootstrap token, and what follows it."""

    def __init__(
        self,
        members: Members,
        renewals: Renewals,
        leases: Leases,
        info: InfoPage,
        authority: Authority,
        limit: EnrollLimit,
    ) -> None:
        self._members, self._renewals, self._limit = members, renewals, limit
        self._leases, self._info, self._authority = leases, info, authority

    def operations(self) -> Sequence[Operation]:
        return [
            Operation(
                method="GET",
                path="/info",
                handle=self.info,
                summary="The routers that are up, and the peers that are banned.",
                gives=ControlPlaneInfoResponse,
            ),
            Operation(
                method="GET",
                path="/keys",
                handle=self.keys,
                summary="The keys whose credentials are good, signed by each of them.",
                gives=KeysResponse,
            ),
            Operation(
                method="POST",
                path="/enroll",
                handle=self.enroll,
                summary="Become a member with a bootstrap token, or get a new credential as one.",
                takes=BootstrapEnrollRequest,
                gives=BootstrapEnrollResponse,
                refusals=(401, 429),
            ),
            Operation(
                method="GET",
                path="/enroll/status",
                handle=self.enroll_status,
                summary="What became of an enrollment that waited for an admin.",
                door=Door.CHALLENGE,
                gives=BootstrapEnrollResponse,
                refusals=(401, 429),
                query=(PEER_ID,),
            ),
            Operation(
                method="POST",
                path="/refresh",
                handle=self.refresh,
                summary="A new credential for the last one issued.",
                door=Door.CREDENTIAL,
                takes=TokenRefreshRequest,
                gives=TokenRefreshResponse,
                refusals=(401, 403),
            ),
            Operation(
                method="POST",
                path="/routers/lease",
                handle=self.lease,
                summary="As a router, say that it is up, and for how long.",
                takes=RouterLeaseRequest,
                gives=RouterLeaseResponse,
                refusals=(401, 403),
            ),
        ]

    async def info(self, request: Request) -> Response:
        encoded = await self._info.encoded()
        if wants_json(request):
            return answer(request, ControlPlaneInfoResponse.parse(encoded))
        return Response(encoded, media_type=PROTOBUF)

    async def keys(self, request: Request) -> Response:
        return answer(request, await self._authority.key_set())

    async def enroll(self, request: Request) -> Response:
        self._limit.take()
        message = await read_message(request, BootstrapEnrollRequest)
        return with_routers(request, await self._members.enroll(message), self._info)

    async def enroll_status(self, request: Request) -> Response:
        self._limit.take()
        peer_id = request.query_params.get("peer_id", "")
        proof = proof_in_headers(request, "enroll-status", NO_ENROLLMENT)
        return with_routers(request, await self._members.enrollment_status(peer_id, proof), self._info)

    async def refresh(self, request: Request) -> Response:
        presented = bearer_credential(request)
        message = await read_message(request, TokenRefreshRequest)
        return answer(request, await self._renewals.refresh(message, presented), NO_STORE)

    async def lease(self, request: Request) -> Response:
        return answer(request, await self._leases.renew(await read_message(request, RouterLeaseRequest)))
