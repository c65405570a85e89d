"""Getting into the mesh, and having a standing there for as long as a block lasts."""

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from agentmesh.control_plane.backoff import Backoff
from agentmesh.control_plane.client import ControlPlaneClient, open_client
from agentmesh.errors import AddressError
from agentmesh.identity import Identity
from agentmesh.membership.enrollment import Enrollment
from agentmesh.membership.membership import Membership
from agentmesh.membership.registering import RegisteringClient
from agentmesh.membership.state import StateDir
from agentmesh.transports.proxy import ProxyRules


@asynccontextmanager
async def open_membership(
    identity: Identity,
    enrollment: Enrollment,
    *,
    state: StateDir | None = None,
    wall_clock: Callable[[], float] = time.time,
    proxies: ProxyRules | None = None,
) -> AsyncGenerator[Membership]:
    """Be in the mesh: resume with what `state` holds, or enroll. `run` then keeps it so.

    Args:
        identity: who we are.
        enrollment: how to get in.
        state: where the credential is kept; None keeps it nowhere.
        wall_clock: seconds since 1970.
        proxies: through which proxy the control plane is reached; what the environment says now if it is None.
    Raises:
        AddressError: the control plane's URL is none, or the environment names a proxy that is none.
        Otherwise as `Membership.begin`.
    """
    async with AsyncExitStack() as stack:
        backoff = Backoff(budget=enrollment.retry_budget)
        make = partial(RegisteringClient, jwt_path=enrollment.jwt_path) if enrollment.jwt_path else ControlPlaneClient
        opening = open_client(
            enrollment.control_plane, identity, wall_clock=wall_clock, backoff=backoff, proxies=proxies, make=make
        )
        try:
            client = await stack.enter_async_context(opening)
        except AddressError:  # of a proxy
            raise
        except ValueError:
            raise AddressError(f"the control plane's address is no HTTP URL: {enrollment.mesh!r}") from None
        membership = Membership(identity, client, enrollment, state, wall_clock)
        await membership.begin()
        yield membership
