"""Tells the routers what is in the outbox: a host that nobody dials, with a link of floodsub to every router.

A router that was not linked when something was said hears nothing of it later: it reads bans from /info and keys from
/keys, every few minutes, as all members do.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NoReturn

import attrs
import trio

from agentmesh.abc import Stream, Transport
from agentmesh.control_plane.authority import Authority
from agentmesh.control_plane.database import StoreError
from agentmesh.control_plane.herald import Herald
from agentmesh.control_plane.records import Lease
from agentmesh.control_plane.store import Store
from agentmesh.credentials import ROLE_NODE, ROLE_ROUTER, Credential, verify
from agentmesh.errors import CredentialError, DialError, RemoteProtocolError
from agentmesh.events import EVENT_WINDOW, EVENTS_TOPIC
from agentmesh.identity import Identity
from agentmesh.protocols import goaway
from agentmesh.protocols.auth import AUTH_ID, authenticate
from agentmesh.protocols.floodsub import Floodsub, Role
from agentmesh.protocols.goaway import GoAway
from agentmesh.runtime.host import Host, open_host
from agentmesh.runtime.session import MuxSession
from agentmesh.types import PeerId

logger = logging.getLogger(__name__)

LOOK_INTERVAL = 1.0  # seconds between looks at the leases that this process knows of
LINK_TIMEOUT = 10.0  # seconds to dial a router and be admitted there
EVENT_RETENTION = 86400.0  # seconds that events are kept
FORGET_INTERVAL = 3600.0  # seconds
CLOSE_TIMEOUT = 1.0  # seconds to say goodbye to a router

LINK_ERRORS = (DialError, CredentialError, RemoteProtocolError, trio.BrokenResourceError, trio.TooSlowError)


class RouterLinks:
    """The links of floodsub to routers; they come and go with their leases.

    Args:
        reconnect_interval: seconds until a router that was lost, or not reached, is dialled again.
        wall_clock: gives the seconds since 1970.
    """

    def __init__(
        self,
        identity: Identity,
        store: Store,
        authority: Authority,
        reconnect_interval: float,
        wall_clock: Callable[[], float],
    ) -> None:
        self.floodsub = Floodsub(Role.LEAF, wall_clock=wall_clock)
        self._identity, self._store, self._authority = identity, store, authority
        self._interval, self._wall_clock = reconnect_interval, wall_clock
        self._due: dict[PeerId, float] = {}  # when each router that has a lease may be dialled next
        self._answering: set[PeerId] = set()  # those that speak floodsub with us
        self._linked: dict[PeerId, trio.CancelScope] = {}
        self._host: Host

    def __len__(self) -> int:
        return len(self._answering)

    async def hear(self, stream: Stream) -> None:
        """What a router has to say, which is nothing to us but that it listens."""
        self._answering.add(stream.peer)
        try:
            await self.floodsub.serve(stream)
        finally:
            self._answering.discard(stream.peer)

    async def run(self, host: Host) -> NoReturn:
        """Keep a link to every router that is up, until cancelled."""
        self._host = host
        look_due = trio.current_time() + self._interval
        async with trio.open_nursery() as nursery:
            while True:
                if trio.current_time() >= look_due:  # another replica may have taken leases
                    look_due = trio.current_time() + self._interval
                    with suppress(StoreError):
                        await self._store.mirror.look()
                leases = {lease.peer: lease for lease in self._store.mirror.latest.live_leases(self._wall_clock())}
                for router in self._due.keys() - leases.keys():
                    del self._due[router]
                for lease in leases.values():
                    if trio.current_time() >= self._due.get(lease.peer, 0.0):
                        self._due[lease.peer] = trio.current_time() + self._interval
                        nursery.start_soon(self._link, lease)
                await trio.sleep(LOOK_INTERVAL)

    async def _link(self, lease: Lease) -> None:
        """Be linked to a router until the link ends, or our credential is half as old as it may get."""
        router = lease.peer
        if self._host.session(router) is not None:
            return  # linked, or being linked
        try:
            issue = self._authority.issue(self._identity.peer, ROLE_NODE, {}, "")
            with trio.fail_after(LINK_TIMEOUT):
                session = await self._host.connect(router, lease.addresses)
                await self._admit(session, issue.credential)
            with trio.move_on_after((issue.expires_at - self._wall_clock()) / 2) as self._linked[router]:
                await self.floodsub.attach(router)
        except LINK_ERRORS as exc:
            logger.info("no link to the router", extra={"router": router, "reason": exc, "retry_in": self._interval})
        finally:
            self._linked.pop(router, None)
            if (standing := self._host.session(router)) is not None:
                with trio.move_on_after(CLOSE_TIMEOUT, shield=True):
                    await standing.aclose()

    def leave(self, router: PeerId, _: GoAway) -> None:
        """End the link to a router that stops, which need not wait for us then. It is dialled again when it is back."""
        self._linked[router].cancel()

    def is_linked(self, router: PeerId) -> bool:
        """Whether there is a link to a router."""
        return router in self._linked

    async def _admit(self, session: MuxSession, credential: bytes) -> None:
        async with await session.open_stream(AUTH_ID) as stream:
            await authenticate(stream, token=credential, verify=self._verify, required_role=ROLE_ROUTER)

    def _verify(self, token: bytes, peer: PeerId) -> Credential:
        return verify(token, peer=peer, trusted=self._authority.trusted, now=self._wall_clock())


async def run_publisher(
    store: Store,
    authority: Authority,
    herald: Herald,
    *,
    transports: Sequence[Transport],
    reconnect_interval: float,
    wall_clock: Callable[[], float],
) -> NoReturn:
    """Publish what is in the outbox to every router that is up, until cancelled.

    Args:
        herald: says when something is put there; besides, it is looked at every `reconnect_interval` seconds.
        transports: to dial routers with.
        reconnect_interval: seconds until a router that was lost, or not reached, is dialled again.
        wall_clock: gives the seconds since 1970.
    """
    identity = Identity.generate()
    links = RouterLinks(identity, store, authority, reconnect_interval, wall_clock)
    spoken = [attrs.evolve(links.floodsub.protocol(), serve=links.hear), goaway.protocol(links.is_linked, links.leave)]
    async with (
        open_host(identity=identity, transports=transports, protocols=spoken) as host,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(links.run, host)
        nursery.start_soon(_forget, store, wall_clock)
        while True:
            try:
                await _publish_waiting(store, links, wall_clock)
            except StoreError as exc:
                logger.warning("events not read", extra={"reason": exc})
            with trio.move_on_after(reconnect_interval):
                await herald.said.wait()


async def _publish_waiting(store: Store, links: RouterLinks, wall_clock: Callable[[], float]) -> None:
    """Publish what nobody has, if there is a router to hear it. What is too old to be honoured is passed over."""
    for event in await store.outbox.waiting() if len(links) else ():
        if not await store.outbox.claim(event, wall_clock()):
            continue
        if wall_clock() - event.created_at > EVENT_WINDOW:
            logger.warning("an event came to no router in time", extra={"event": event.id})
            continue
        routers = await links.floodsub.publish(EVENTS_TOPIC, event.data)
        logger.info("event published", extra={"event": event.id, "routers": routers})


async def _forget(store: Store, wall_clock: Callable[[], float]) -> NoReturn:
    while True:
        with suppress(StoreError):
            await store.outbox.forget(wall_clock() - EVENT_RETENTION)
        await trio.sleep(FORGET_INTERVAL)
