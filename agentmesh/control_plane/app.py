"""The HTTP interface, as an ASGI app. Handlers read a message, call one method and answer."""

import base64
from collections.abc import Callable, Sequence
from http import HTTPStatus

import trio
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route

from agentmesh.control_plane.admin import Admin, AdminOnly
from agentmesh.control_plane.approvals import Approvals
from agentmesh.control_plane.authority import Authority
from agentmesh.control_plane.config import Config
from agentmesh.control_plane.http import EXCEPTION_HANDLERS, PROTOBUF, credential, protobuf, read_message
from agentmesh.control_plane.info import InfoPage
from agentmesh.control_plane.leases import Leases
from agentmesh.control_plane.members import NO_ENROLLMENT, Members
from agentmesh.control_plane.metrics import CONTENT_TYPE, Metrics
from agentmesh.control_plane.middleware import Counted, Dated, OpenToBrowsers
from agentmesh.control_plane.proof import Proof
from agentmesh.control_plane.ratelimit import TokenBucket
from agentmesh.control_plane.refusals import RefusedError, unauthorized
from agentmesh.control_plane.renewals import Renewals
from agentmesh.control_plane.store import Store
from agentmesh.wire.messages.mesh.v1 import BootstrapEnrollRequest, RouterLeaseRequest, TokenRefreshRequest

ENROLL_RETRY_AFTER = 2  # seconds that a caller is to wait when too many enroll

FOR_BROWSERS = ("/info", "/keys", "/enroll", "/enroll/status", "/refresh")


class MemberApi:
    """What members and routers call."""

    def __init__(
        self,
        members: Members,
        renewals: Renewals,
        leases: Leases,
        info: InfoPage,
        authority: Authority,
        config: Config,
    ) -> None:
        self._members, self._renewals = members, renewals
        self._leases, self._info, self._authority = leases, info, authority
        self._bucket = TokenBucket(config.enroll_rate, config.enroll_burst)

    def routes(self) -> Sequence[Route]:
        return [
            Route("/info", self.info),
            Route("/keys", self.keys),
            Route("/enroll", self.enroll, methods=["POST"]),
            Route("/enroll/status", self.enroll_status),
            Route("/refresh", self.refresh, methods=["POST"]),
            Route("/routers/lease", self.lease, methods=["POST"]),
        ]

    async def info(self, _: Request) -> Response:
        return Response(await self._info.encoded(), media_type=PROTOBUF)

    async def keys(self, _: Request) -> Response:
        return protobuf(await self._authority.key_set())

    async def enroll(self, request: Request) -> Response:
        self._limit()
        return credential(await self._members.enroll(await read_message(request, BootstrapEnrollRequest)))

    async def enroll_status(self, request: Request) -> Response:
        self._limit()
        peer_id = request.query_params.get("peer_id", "")
        return credential(await self._members.enrollment_status(peer_id, _proof_in_headers(request)))

    async def refresh(self, request: Request) -> Response:
        presented = _bearer_credential(request)
        return credential(await self._renewals.refresh(await read_message(request, TokenRefreshRequest), presented))

    async def lease(self, request: Request) -> Response:
        return protobuf(await self._leases.renew(await read_message(request, RouterLeaseRequest)))

    def _limit(self) -> None:
        if not self._bucket.take(trio.current_time()):
            status = HTTPStatus.TOO_MANY_REQUESTS
            raise RefusedError(status, "too many enroll at once; try again later", ENROLL_RETRY_AFTER)


class HealthApi:
    """What whoever runs us calls."""

    def __init__(self, store: Store, metrics: Metrics) -> None:
        self._store, self._metrics = store, metrics

    def routes(self) -> Sequence[Route]:
        return [
            Route("/healthz", self.healthz),
            Route("/readyz", self.readyz),
            Route("/metrics", self.metrics),
        ]

    async def healthz(self, _: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(self, _: Request) -> Response:
        await self._store.ping()
        return PlainTextResponse("ok\n")

    async def metrics(self, _: Request) -> Response:
        return Response(await self._metrics.render(), media_type=CONTENT_TYPE)


def make_app(
    store: Store, authority: Authority, metrics: Metrics, config: Config, wall_clock: Callable[[], float]
) -> Starlette:
    """The app of one control plane.

    Args:
        wall_clock: gives the seconds since 1970.
    """
    members = Members(store, authority, config, wall_clock)
    leases = Leases(store, authority, config.lease_duration, wall_clock)
    renewals = Renewals(store, authority, wall_clock)
    member_api = MemberApi(members, renewals, leases, InfoPage(store.mirror, wall_clock), authority, config)
    open_routes = [*member_api.routes(), *HealthApi(store, metrics).routes()]
    admin_routes = Admin(store, Approvals(store, authority, wall_clock), wall_clock).routes()
    admin = Mount("/admin", routes=admin_routes, middleware=[Middleware(AdminOnly, token=config.admin_token)])
    paths: dict[object, str] = {route.endpoint: route.path_format for route in open_routes}
    paths |= {route.endpoint: admin.path + route.path_format for route in admin_routes}
    metrics.expect(paths.values())
    return Starlette(
        routes=[*open_routes, admin],
        middleware=[
            Middleware(Counted, metrics=metrics, routes=paths),
            Middleware(Dated, wall_clock=wall_clock),
            Middleware(OpenToBrowsers, paths=FOR_BROWSERS),
        ],
        exception_handlers=EXCEPTION_HANDLERS,
    )


def _bearer_credential(request: Request) -> bytes:
    scheme, _, encoded = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        raise unauthorized("the last credential is needed: Authorization: Bearer <base64>")
    return _base64(encoded.strip(), "the credential is no base64")


def _proof_in_headers(request: Request) -> Proof:
    try:
        unix_ms = int(request.headers.get("x-mesh-challenge-ts", ""))
    except ValueError as exc:
        raise unauthorized(NO_ENROLLMENT) from exc
    signature = _base64(request.headers.get("x-mesh-challenge-sig", ""), NO_ENROLLMENT)
    return Proof("enroll-status", unix_ms, signature)


def _base64(text: str, refusal: str) -> bytes:
    """Of either alphabet, padded or not."""
    unpadded = text.rstrip("=").translate(str.maketrans("+/", "-_"))
    try:
        return base64.b64decode(unpadded + "=" * (-len(unpadded) % 4), altchars=b"-_", validate=True)
    except ValueError as exc:
        raise unauthorized(refusal) from exc
