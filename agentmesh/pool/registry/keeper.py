"""Keeping a router's connections listed, for as long as they live.

Each lease is renewed in time. One that lapsed while the registry was away is registered again, under a higher epoch, as
soon as the registry answers. A connection that lives on under another router's hand is given up. And whatever the
registry has not confirmed for long enough is not relied upon: the router fences itself.
"""

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from random import Random
from typing import NoReturn, TypeVar

import trio

from agentmesh.pool.registry.errors import RegistryError, RegistryUnavailableError
from agentmesh.pool.registry.forgetting import forget_for_ever
from agentmesh.pool.registry.keeper_config import (
    Healed,
    KeeperConfig,
    KeeperEvent,
    Lost,
    Result,
    Unlisted,
    tell_nobody,
)
from agentmesh.pool.registry.keeping import Input, Kept, State
from agentmesh.pool.registry.registry import ConnectionRegistry
from agentmesh.pool.registry.values import (
    Fence,
    Full,
    Held,
    Lapsed,
    NewConnection,
    Registered,
    Renewed,
    StatsReport,
    Superseded,
    Updated,
)
from agentmesh.protocols.pool import ConnEpoch

logger = logging.getLogger(__name__)

LEAST_PAUSE = 0.25  # seconds between two looks at what is due, however many connections there are

T = TypeVar("T")


class Keeper:
    """The leases of one router.

    Args:
        rng: spreads renewals, and attempts while the registry is away.
        notify: is told what befell a connection. It must neither wait nor raise.

    Attributes:
        results: what came of calls; every Result is there from the start, at 0.
    """

    def __init__(
        self,
        registry: ConnectionRegistry,
        config: KeeperConfig,
        rng: Random,
        notify: Callable[[KeeperEvent], None] = tell_nobody,
    ) -> None:
        self.results: dict[Result, int] = dict.fromkeys(Result, 0)
        self._registry, self._config, self._rng, self._notify = registry, config, rng, notify
        self._kept: dict[tuple[str, str], Kept] = {}
        self._is_away = False  # as far as we know
        self._more = trio.Event()  # is due, or soon

    def __len__(self) -> int:
        """Connections that are kept."""
        return len(self._kept)

    def __iter__(self) -> Iterator[Kept]:
        return iter(list(self._kept.values()))

    def get(self, fence: Fence) -> Kept | None:
        """The connection that is kept under this very fence, if it is."""
        kept = self._kept.get((fence.agent_id, fence.connection_id))
        return kept if kept is not None and kept.fence == fence else None

    def accepts(self, fence: Fence) -> bool:
        """Whether a stream that another router sends may be opened on this very life of a connection.

        Not if it is none of ours, if another life has begun, or if the registry has not confirmed it for so long that
        its lease may be over: after a pause of this process, too.
        """
        kept = self.get(fence)
        return kept is not None and kept.accepts(fence.epoch, trio.current_time())

    async def run(self) -> NoReturn:
        """Renew, register again, report and forget, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._report_for_ever)
            nursery.start_soon(forget_for_ever, self._registry, self._config, self._rng)
            await self._tend_for_ever()

    async def register(self, new: NewConnection, proposed: ConnEpoch | None = None) -> Kept | Held | Superseded | Full:
        """List a connection, and keep it listed from now on.

        Raises:
            RegistryUnavailableError: the registry does not answer, or not in time.
            RegistryError: as `ConnectionRegistry.register_connection` says.
        Cancellation: safe, and bounded by `operation_timeout`: what was registered is released again.
        """
        asked_at = trio.current_time()
        register = partial(self._registry.register_connection, new, self._config.ttl, proposed)
        outcome = await self._ask(register, shield=True)
        if not isinstance(outcome, Registered):
            return outcome
        try:
            await trio.lowlevel.checkpoint_if_cancelled()
        except trio.Cancelled:
            await self._end(outcome.fence)
            raise
        key = new.agent_id, new.connection_id
        before = self._kept.get(key)
        if before is not None and before.epoch > outcome.fence.epoch:  # whose answer came first
            return Superseded(before.epoch)
        if before is not None:
            before.step(Input.SUPERSEDED)
        kept = self._kept[key] = Kept(new, outcome.fence, 0.0, 0.0)
        self._hold(kept, outcome.fence, asked_at)
        self._more.set()
        return kept

    async def release(self, kept: Kept) -> None:
        """Have a connection that has ended be listed no more. One that is lost, or released, already is.

        Cancellation: bounded by `release_timeout`. If the registry does not answer, the lease runs out by itself.
        """
        is_ours = kept.is_live
        kept.step(Input.RELEASE)
        self._drop(kept)
        if is_ours:
            await self._end(kept.fence)

    async def report(self) -> None:
        """Tell the registry how busy connections are, where it does not know."""
        now = trio.current_time()
        to_tell = [kept for kept in self if kept.is_to_be_told(now, self._config.renew_interval)]
        size = self._registry.limits.max_batch
        for start in range(0, len(to_tell), size):
            await self._report_batch(to_tell[start : start + size], now)

    # ── renewing ──

    async def _tend_for_ever(self) -> NoReturn:
        while True:
            now = trio.current_time()
            due = [kept for kept in self if kept.renew_at <= now]
            if self._is_away and due:
                due = [self._rng.choice(due)]  # it asks whether the registry is back, for all
            await self._tend_all(due)
            await self._wait_due(due)

    async def _wait_due(self, tended: Sequence[Kept]) -> None:
        if self._is_away:
            await trio.sleep(self._config.retry_interval * self._rng.uniform(0.5, 1.0))
            return
        if tended:
            await trio.sleep(LEAST_PAUSE)
        self._more = trio.Event()
        next_at = min((kept.renew_at for kept in self), default=float("inf"))
        with trio.move_on_at(next_at):
            await self._more.wait()

    async def _tend_all(self, due: Sequence[Kept]) -> None:
        """Until the registry does not answer."""
        rest = iter(due)

        async def work() -> None:
            for kept in rest:
                if not await self._tend(kept):
                    return

        was_away = self._is_away
        async with trio.open_nursery() as nursery:
            for _ in range(min(self._config.max_at_once, len(due))):
                nursery.start_soon(work)
        if was_away and not self._is_away:
            await self._tend_all([kept for kept in self if kept.renew_at <= trio.current_time()])

    async def _tend(self, kept: Kept) -> bool:
        """Renew a lease, or get it back. False when the registry does not answer."""
        try:
            await (self._renew(kept) if kept.state is State.LISTED else self._heal(kept))
        except RegistryUnavailableError as exc:
            self.results[Result.UNAVAILABLE] += 1
            if not self._is_away:
                logger.warning("the registry is away", extra={"reason": exc, "connections": len(self)})
            self._is_away = True
        except RegistryError as exc:
            logger.warning("lease not renewed", extra={"reason": exc, "connection": kept.new.connection_id})
            kept.renew_at = trio.current_time() + self._config.renew_interval
            self._is_away = False
        else:
            self._is_away = False
        return not self._is_away

    async def _renew(self, kept: Kept) -> None:
        asked_at = trio.current_time()
        match await self._ask(partial(self._registry.renew_connection, kept.fence, self._config.ttl)):
            case Renewed():
                self.results[Result.RENEWED] += 1
                kept.step(Input.RENEWED)
                self._hold(kept, kept.fence, asked_at)
            case Superseded(epoch):
                self._lose(kept, epoch)
            case Lapsed():
                if kept.step(Input.LAPSED):
                    self.results[Result.LAPSED] += 1
                    await self._heal(kept)

    async def _heal(self, kept: Kept) -> None:
        """Register a connection again that lives, and whose lease has run out."""
        if not kept.is_live:
            return
        before, asked_at = kept.fence, trio.current_time()
        register = partial(self._registry.register_connection, kept.new, self._config.ttl)
        outcome = await self._ask(register)
        if isinstance(outcome, Held) and outcome.server_node_id == kept.new.server_node_id:
            # Ours: an earlier attempt whose answer did not come.
            asked_at = trio.current_time()
            outcome = await self._ask(partial(register, ConnEpoch(outcome.epoch + 1)))
        match outcome:
            case Registered(fence):
                if kept.step(Input.REGISTERED):
                    self._hold(kept, fence, asked_at)
                    self.results[Result.HEALED] += 1
                    self._notify(Healed(kept, before))
                else:  # it ended meanwhile
                    await self._end(fence)
            case Held(_, epoch) | Superseded(epoch):
                self._lose(kept, epoch)
            case Full(limit):
                self.results[Result.FULL] += 1
                kept.renew_at = trio.current_time() + self._config.renew_interval
                self._notify(Unlisted(kept, limit))

    def _hold(self, kept: Kept, fence: Fence, asked_at: float) -> None:
        """Trust it from when it was asked for: the registry's answer may have taken long."""
        interval = self._config.renew_interval * self._rng.uniform(0.8, 1.0)
        kept.hold(fence, asked_at + self._config.trust * self._config.ttl, asked_at + interval)

    def _lose(self, kept: Kept, epoch: ConnEpoch) -> None:
        if kept.is_live:
            kept.step(Input.SUPERSEDED)
            self._drop(kept)
            self.results[Result.LOST] += 1
            self._notify(Lost(kept, epoch))

    def _drop(self, kept: Kept) -> None:
        """Keep it no more; another that took its place stays."""
        key = kept.new.agent_id, kept.new.connection_id
        if self._kept.get(key) is kept:
            del self._kept[key]

    # ── telling, ending ──

    async def _report_for_ever(self) -> NoReturn:
        while True:
            await trio.sleep(self._config.stats_interval)
            if not self._is_away:
                await self.report()

    async def _report_batch(self, batch: Sequence[Kept], now: float) -> None:
        reports = [StatsReport(kept.fence, kept.stats) for kept in batch]
        try:
            outcomes = await self._ask(partial(self._registry.update_connection_stats, reports))
        except RegistryError as exc:
            logger.info("statistics not reported", extra={"reason": exc})
            return
        for kept, report, outcome in zip(batch, reports, outcomes, strict=True):
            if kept.fence != report.fence:
                continue  # it was registered again meanwhile: that was about the life before
            match outcome:
                case Updated():
                    kept.told, kept.told_at = report.stats, now
                case Lapsed():
                    kept.renew_at = now
                    self._more.set()
                case Superseded(epoch):
                    self._lose(kept, epoch)

    async def _end(self, fence: Fence) -> None:
        with trio.move_on_after(self._config.release_timeout, shield=True):
            try:
                await self._registry.release_connection(fence)
            except RegistryError as exc:
                logger.info("lease not released, it runs out by itself", extra={"reason": exc})

    async def _ask(self, call: Callable[[], Awaitable[T]], *, shield: bool = False) -> T:
        with trio.move_on_after(self._config.operation_timeout, shield=shield):
            return await call()
        raise RegistryUnavailableError(f"the registry does not answer within {self._config.operation_timeout} s")
