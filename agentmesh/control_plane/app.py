"""The HTTP interface, as an ASGI app. Handlers read a message, call one method and answer."""

from collections.abc import Callable, Sequence

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from agentmesh.control_plane.admin import Admin, AdminOnly
from agentmesh.control_plane.admin_members import AdminMembers
from agentmesh.control_plane.admin_status import AdminStatus
from agentmesh.control_plane.approvals import Approvals
from agentmesh.control_plane.authority import Authority
from agentmesh.control_plane.callers import Callers
from agentmesh.control_plane.config import Config
from agentmesh.control_plane.herald import Herald
from agentmesh.control_plane.http import EXCEPTION_HANDLERS, JSON
from agentmesh.control_plane.identity_api import IdentityApi
from agentmesh.control_plane.info import InfoPage
from agentmesh.control_plane.leases import Leases
from agentmesh.control_plane.member_api import EnrollLimit, MemberApi
from agentmesh.control_plane.members import Members
from agentmesh.control_plane.metrics import CONTENT_TYPE, Metrics
from agentmesh.control_plane.middleware import Counted, Dated, OpenToBrowsers
from agentmesh.control_plane.oidc.verifier import TokenVerifier
from agentmesh.control_plane.openapi import TEXT, document
from agentmesh.control_plane.operations import Door, Operation, codes, routes
from agentmesh.control_plane.policy_api import PolicyApi
from agentmesh.control_plane.registration import Registration
from agentmesh.control_plane.renewals import Renewals
from agentmesh.control_plane.store import Store

FOR_BROWSERS = ("/info", "/keys", "/register", "/enroll", "/enroll/status", "/refresh", "/policies", "/revocations")


class HealthApi:
    """What whoever runs us calls."""

    def __init__(self, store: Store, metrics: Metrics) -> None:
        self._store, self._metrics = store, metrics
        self._described: dict[str, object] = {}

    def operations(self) -> Sequence[Operation]:
        return [
            Operation(method="GET", path="/healthz", handle=self.healthz, summary="Whether we run.", gives=TEXT),
            Operation(
                method="GET", path="/readyz", handle=self.readyz, summary="Whether the database answers.", gives=TEXT
            ),
            Operation(
                method="GET", path="/metrics", handle=self.metrics, summary="Metrics for Prometheus.", gives=TEXT
            ),
            Operation(method="GET", path="/openapi.json", handle=self.openapi, summary="This description.", gives={}),
        ]

    def describe(self, operations: Sequence[Operation]) -> None:
        """Say what the interface is."""
        self._described = document(operations)

    async def healthz(self, _: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(self, _: Request) -> Response:
        await self._store.ping()
        return PlainTextResponse("ok\n")

    async def metrics(self, _: Request) -> Response:
        return Response(await self._metrics.render(), media_type=CONTENT_TYPE)

    async def openapi(self, _: Request) -> Response:
        return JSONResponse(self._described, media_type=JSON)


def make_metrics_app(store: Store, metrics: Metrics) -> Starlette:
    """What whoever runs us calls, and nothing else: for a port that others do not reach."""
    operations = [operation for operation in HealthApi(store, metrics).operations() if operation.gives == TEXT]
    return Starlette(routes=routes(operations, {}), exception_handlers=EXCEPTION_HANDLERS)


def make_app(
    store: Store,
    authority: Authority,
    herald: Herald,
    verifier: TokenVerifier,
    metrics: Metrics,
    config: Config,
    wall_clock: Callable[[], float],
) -> Starlette:
    """The app of one control plane.

    Args:
        wall_clock: gives the seconds since 1970.
    """
    callers = Callers(store, authority, wall_clock)
    health, limit = HealthApi(store, metrics), EnrollLimit(config)
    info = InfoPage(store.mirror, wall_clock, config)
    registration = Registration(store, authority, verifier, config, wall_clock)
    member_api = MemberApi(
        Members(store, authority, config, wall_clock),
        Renewals(store, authority, registration, wall_clock),
        Leases(store, authority, config.lease_duration, wall_clock),
        info,
        authority,
        limit,
    )
    operations = [
        *member_api.operations(),
        *IdentityApi(store, registration, info, limit, config, wall_clock).operations(),
        *PolicyApi(store, herald, callers).operations(),
        *Admin(store, Approvals(store, authority, wall_clock), wall_clock).operations(),
        *AdminMembers(store, herald, wall_clock).operations(),
        *AdminStatus(store, wall_clock).operations(),
        *health.operations(),
    ]
    health.describe(operations)
    found = routes(operations, {Door.ADMIN: Middleware(AdminOnly, token=config.admin_token)})
    paths: dict[object, str] = {route.endpoint: route.path_format for route in found}
    metrics.expect(codes(operations))
    return Starlette(
        routes=found,
        middleware=[
            Middleware(Counted, metrics=metrics, routes=paths),
            Middleware(Dated, wall_clock=wall_clock),
            Middleware(OpenToBrowsers, paths=FOR_BROWSERS),
        ],
        exception_handlers=EXCEPTION_HANDLERS,
    )
