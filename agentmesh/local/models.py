"""Which models the mesh has, and at whose inference services."""

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, cast

import httpx2
import trio

from agentmesh.errors import DialError, MeshError
from agentmesh.local.asking import fetch
from agentmesh.local.providers import Discovery, Provider, collect
from agentmesh.node import Node
from agentmesh.services import MeshClient2, ServiceKey, Target, host_name

INFERENCE = "inference"
VIEW_TTL = 30.0  # seconds that a view of the mesh is good for
ASK_TIMEOUT = 10.0  # seconds for one provider to list its models
BACKOFF = 15.0  # seconds that a provider which failed is left alone, while there are others
MAX_ASKED_AT_ONCE = 10
MAX_MODELS = 1000  # of one provider

View = Mapping[str, Sequence[Provider]]


class Models:
    """A view of the mesh's models that is made anew when it is old; who wants one meanwhile waits for the same.

    Args:
        node: whose own services come first.
        discovery: finds those of others.
    """

    def __init__(self, node: Node, discovery: Discovery) -> None:
        self._node = node
        self._discovery = discovery
        self._view: View = {}
        self._good_until = 0.0
        self._making = trio.Lock()
        self._turn = itertools.count()
        self._failed: dict[Provider, float] = {}

    async def view(self) -> View:
        """By model, who has it. An empty view is not kept."""
        async with self._making:
            if trio.current_time() >= self._good_until:
                await self._make()
        return self._view

    async def providers(self, model: str) -> list[Provider]:
        """Who has a model, in the order to be tried: this node, then others in turn, those that just failed last."""
        if not (found := (await self.view()).get(model)):
            seen = self._view
            async with self._making:
                if self._view is seen:  # nobody else looked again meanwhile
                    await self._make()
            found = self._view.get(model, ())
        found = self._unless_banned(found)
        own = [one for one in found if self._is_own(one)]
        others = [one for one in found if not self._is_own(one)]
        at = next(self._turn) % max(len(others), 1)
        now = trio.current_time()
        failed = {one for one in found if self._failed.get(one, 0.0) > now}
        self._node.figures.rejections["provider_backoff"] += len(failed)
        return sorted([*own, *others[at:], *others[:at]], key=lambda one: one in failed)

    def failed(self, provider: Provider) -> None:
        """Leave it alone for a while."""
        now = trio.current_time()
        self._failed = {one: until for one, until in self._failed.items() if until > now} | {provider: now + BACKOFF}

    def _unless_banned(self, found: Sequence[Provider]) -> list[Provider]:
        bans = self._node.membership.bans
        left = [one for one in found if one.peer not in bans]
        self._node.figures.rejections["peer_revoked"] += len(found) - len(left)
        return left

    def _is_own(self, provider: Provider) -> bool:
        return provider.peer == self._node.peer

    def _nearest(self, provider: Provider) -> tuple[bool, str]:
        return not self._is_own(provider), str(provider)

    async def _make(self) -> None:
        own = [Provider(self._node.peer, key) for key in self._node.services if key.type == INFERENCE]
        try:
            others = await collect(self._discovery, INFERENCE)
        except DialError:
            others = []
        view: defaultdict[str, list[Provider]] = defaultdict(list)
        room = trio.CapacityLimiter(MAX_ASKED_AT_ONCE)

        async def ask(provider: Provider) -> None:
            async with room:
                names = await self._ask(client, provider)
            for name in names:
                view[name].append(provider)

        async with self._node.http_client2(timeout=ASK_TIMEOUT) as client, trio.open_nursery() as nursery:
            for provider in (*own, *others):
                nursery.start_soon(ask, provider)
        self._view = {name: sorted(view[name], key=self._nearest) for name in sorted(view)}
        self._good_until = trio.current_time() + VIEW_TTL if view else 0.0

    async def _ask(self, client: MeshClient2, provider: Provider) -> list[str]:
        with trio.move_on_after(ASK_TIMEOUT):
            try:
                if not self._is_own(provider):
                    url = f"http://{host_name(provider.peer)}/{INFERENCE}/{provider.service.name}/v1/models"
                    return names_in(await fetch(client, "GET", url))
                target = self._node.target_of(provider.service)
                return [] if target is None else names_in(await _ask_here(client, target, provider.service))
            except (httpx2.HTTPError, MeshError):
                pass
        return []


async def _ask_here(client: MeshClient2, target: Target, service: ServiceKey) -> httpx2.Response:
    if isinstance(target, str):
        return await fetch(client, "GET", f"{target.rstrip('/')}/v1/models")
    transport = httpx2.ASGITransport(cast(Any, target), root_path=f"/{service.type}/{service.name}")
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as here:
        return await fetch(here, "GET", f"/{service.type}/{service.name}/v1/models")


def names_in(answer: httpx2.Response) -> list[str]:
    """The models in an answer of `/v1/models`; none when it is none."""
    if answer.status_code != 200:
        return []
    try:
        content: Any = answer.json()
        return [str(model["id"]) for model in content["data"][:MAX_MODELS]]
    except (ValueError, TypeError, LookupError):  # no JSON, or another form
        return []
