"""The composition: a control plane and a router that enrolls with it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
from attrs import validators

from agentmesh.control_plane.config import Config
from agentmesh.control_plane.policy.model import Policy
from agentmesh.control_plane.policy.open import OPEN_POLICY
from agentmesh.control_plane.server import ControlPlane, open_control_plane
from agentmesh.credentials import ROLE_NODE, ROLE_ROUTER
from agentmesh.membership import Enrollment
from agentmesh.router import Router, RouterConfig, open_router
from agentmesh.types import Address

DEFAULT_LISTEN = (Address.parse("/ip4/127.0.0.1/tcp/0"), Address.parse("/ip4/127.0.0.1/tcp/0/ws"))
DAY = 86400.0


@attrs.frozen(kw_only=True)
class OneConfig:
    """Settings of a mesh in one process. ValueError when one of them is out of range."""

    data_dir: Path = Path("mesh")
    """The database, the router's key and credential."""
    bind_address: str = "127.0.0.1:8080"
    """Where the control plane serves; port 0 takes a free one."""
    listen: tuple[Address, ...] = DEFAULT_LISTEN
    """Where the router listens."""
    admin_token: str | None = attrs.field(default=None, repr=False)
    """What admins show; None leaves the admin interface closed."""
    policy: Policy = OPEN_POLICY
    """Put in force when there is none yet: everybody may do everything."""
    join_usages: int = attrs.field(default=100, validator=validators.ge(1))
    """How many members the join token lets in."""


@attrs.frozen
class One:
    """A mesh that is up. `join_token` lets members in, for a day."""

    control_plane: ControlPlane
    router: Router
    join_token: str = attrs.field(repr=False)


@asynccontextmanager
async def open_one(config: OneConfig | None = None) -> AsyncGenerator[One]:
    """`async with open_one() as mesh, open_node(mesh.control_plane.url, mesh.join_token) as node:`

    Raises:
        OSError: an address is taken, or the folder is not ours to write.
    """
    config = config or OneConfig()
    config.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    settings = Config(
        bind_address=config.bind_address,
        db_dsn=str(config.data_dir / "control-plane.db"),
        auto_approve_enrollment=True,
        admin_token=config.admin_token,
        policy=config.policy,
    )
    async with open_control_plane(settings) as control_plane:
        token = await control_plane.create_token(ROLE_ROUTER, description="this process's router")
        router_config = RouterConfig(
            enrollment=Enrollment(control_plane=control_plane.url, token=token),
            state_dir=config.data_dir / "router",
            listen=config.listen,
        )
        async with open_router(router_config) as router:
            join_token = await control_plane.create_token(
                ROLE_NODE, max_usages=config.join_usages, ttl=DAY, description="members"
            )
            yield One(control_plane, router, join_token)
