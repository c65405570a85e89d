"""Links of floodsub between routers: what a member of one publishes, members of the others hear."""

from functools import partial
from random import Random
from typing import NoReturn

import trio

from agentmesh.membership.news import keep_linked
from agentmesh.membership.rulebook import Rulebook
from agentmesh.protocols.floodsub import Floodsub
from agentmesh.router.federation import Federation
from agentmesh.types import PeerId


class RouterLinks:
    """Keeps a link to every router that is joined. Of two routers the one of the lesser ID makes it.

    Args:
        me: who we are.
        floodsub: ours.
        federation: says which routers are joined.
        rules: the mesh's policy.
    """

    def __init__(self, me: PeerId, floodsub: Floodsub, federation: Federation, rules: Rulebook) -> None:
        self._me = me
        self._floodsub = floodsub
        self._federation = federation
        self._rules = rules
        self._rng = Random(str(me))
        self._scopes: dict[PeerId, trio.CancelScope] = {}

    async def run(self) -> NoReturn:
        """Link, and unlink, until cancelled."""
        async with trio.open_nursery() as nursery:
            self._federation.on_join(partial(self._begin, nursery))
            self._federation.on_leave(self._end)
            for peer in self._federation.peers:  # a router that was faster than we
                self._begin(nursery, peer)
            await trio.sleep_forever()

    def _begin(self, nursery: trio.Nursery, peer: PeerId) -> None:
        if str(self._me) < str(peer):
            scope = self._scopes[peer] = trio.CancelScope()
            nursery.start_soon(self._keep, peer, scope)

    async def _keep(self, peer: PeerId, scope: trio.CancelScope) -> None:
        with scope:
            await keep_linked(self._floodsub, self._rng, self._rules, peer)

    def _end(self, peer: PeerId) -> None:
        if (scope := self._scopes.pop(peer, None)) is not None:
            scope.cancel()
