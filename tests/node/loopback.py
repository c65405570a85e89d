"""A mesh on the loopback interface: a real control plane, real sockets, all in this process."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Self

import attrs
import trio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from agentmesh.abc import Transport
from agentmesh.control_plane.config import Config
from agentmesh.control_plane.policy.model import Policy
from agentmesh.control_plane.policy.open import OPEN_POLICY
from agentmesh.control_plane.server import ControlPlane, open_control_plane
from agentmesh.credentials import ROLE_NODE, ROLE_ROUTER
from agentmesh.membership import Enrollment
from agentmesh.node import Node, NodeConfig, run_node
from agentmesh.router import Router, RouterConfig, open_router
from agentmesh.runtime.nursery import open_background
from agentmesh.types import Address

LISTEN = tuple(Address.parse(f"/ip4/127.0.0.1/tcp/0{over}") for over in ("", "/ws", "/http"))


@attrs.frozen
class Loopback:
    """A control plane, and routers that can be killed."""

    folder: Path
    control_plane: ControlPlane
    nursery: trio.Nursery
    scopes: dict[str, tuple[Router, trio.CancelScope]] = attrs.Factory(dict[str, tuple[Router, trio.CancelScope]])

    async def enrollment(self, role: str = ROLE_NODE) -> Enrollment:
        """A way in for one member."""
        return Enrollment(control_plane=self.control_plane.url, token=await self.control_plane.create_token(role))

    async def router(self, name: str, **settings: Any) -> Router:
        """Start a router; "labels" among the settings are those that it is attested."""
        enrollment = attrs.evolve(await self.enrollment(ROLE_ROUTER), labels=settings.pop("labels", {}))
        given: dict[str, Any] = {"listen": LISTEN, **settings}
        config = RouterConfig(enrollment=enrollment, state_dir=self.folder / name, **given)
        router: Router = await self.nursery.start(self._run, name, config)
        return router

    def kill(self, name: str) -> None:
        """End a router as the death of its process does: nobody is told."""
        router, scope = self.scopes.pop(name)
        for session in router.host.connections:
            session.abort("killed")
        scope.cancel()

    async def wait_linked(self, *nodes: Node) -> list[Router]:
        """Until every router has a link for events to each of these and to the control plane; all routers."""
        routers = [router for router, _ in self.scopes.values()]
        links = len(nodes) + len(routers)  # to the other routers and the control plane
        with trio.fail_after(20):
            while any(one.floodsub.statistics().links < links for one in routers):  # noqa: ASYNC110
                await trio.sleep(0.02)
        return routers

    async def _run(self, name: str, config: RouterConfig, task_status: trio.TaskStatus[Router]) -> None:
        with trio.CancelScope() as scope:
            async with open_router(config) as router:
                self.scopes[name] = router, scope
                task_status.started(router)
                await trio.sleep_forever()

    async def config(self, **settings: Any) -> NodeConfig:
        """Settings of a node; "labels" among them are those that it is attested."""
        enrollment = attrs.evolve(await self.enrollment(), labels=settings.pop("labels", {}))
        return NodeConfig(enrollment=enrollment, **settings)

    async def node(
        self, *, transports: Sequence[Transport] | None = None, **settings: Any
    ) -> AbstractAsyncContextManager[Node]:
        """`async with await mesh.node() as node`"""
        return run_node(await self.config(**settings), transports=transports)


@asynccontextmanager
async def open_loopback(folder: Path, *routers: str, policy: Policy | None = OPEN_POLICY) -> AsyncGenerator[Loopback]:
    await trio.Path(folder).mkdir(exist_ok=True)
    config = Config(
        bind_address="127.0.0.1:0",
        db_dsn=str(folder / "control-plane.db"),
        auto_approve_enrollment=True,
        enroll_rate=1000.0,
        policy=policy,
    )
    async with open_control_plane(config) as control_plane, open_background() as nursery:
        mesh = Loopback(folder, control_plane, nursery)
        for name in routers:
            await mesh.router(name)
        yield mesh


async def _hello(request: Request) -> PlainTextResponse:
    return PlainTextResponse(f"hello {request.headers['x-peer-id']}")


async def _echo(request: Request) -> Response:
    return Response(await request.body())  # whole: a client of HTTP/1.1 reads no answer while it sends


class _Endless:
    """No generator: Starlette just drops it when its reader goes, and Trio warns of a generator dropped like that."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        await trio.lowlevel.checkpoint()
        return bytes(64 * 1024)


async def _endless(_: Request) -> StreamingResponse:
    return StreamingResponse(_Endless())


def app() -> Starlette:
    """Says hello, echoes what is posted, and one answer never ends."""
    return Starlette(routes=[Route("/", _hello), Route("/echo", _echo, methods=["POST"]), Route("/endless", _endless)])


def url_of(node: Node, path: str = "", service: str = "http/app") -> str:
    return f"http://{node.peer}.peer.mesh/{service}/{path}"
