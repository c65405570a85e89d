"""A registry whose store does not answer at first."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import MockClock

from agentmesh.pool.registry import (
    ConnectionRegistry,
    MemoryRegistry,
    NewConnection,
    Registered,
    RegistryLimits,
    RegistryRefusedError,
    RegistryUnavailableError,
)
from agentmesh.pool.registry.late import RETRY_INTERVAL, open_late_registry

NEW = NewConnection(agent_id="a", connection_id="c", instance_id="i", server_node_id="n")


@attrs.define
class Store:
    """A store that answers from some time on."""

    answers_at: float = 0.0
    refuses: bool = False
    tries: int = 0
    open: int = 0

    def opening(self, limits: RegistryLimits) -> AbstractAsyncContextManager[ConnectionRegistry]:
        return self._open(limits)

    @asynccontextmanager
    async def _open(self, limits: RegistryLimits) -> AsyncGenerator[ConnectionRegistry]:
        self.tries += 1
        await trio.sleep(1)
        if self.refuses:
            raise RegistryRefusedError("no such right")
        if trio.current_time() < self.answers_at:
            raise RegistryUnavailableError("nobody there")
        self.open += 1
        try:
            yield MemoryRegistry(limits, clock=trio.current_time)
        finally:
            self.open -= 1


async def test_one_that_answers_is_there_from_the_start(autojump_clock: MockClock) -> None:
    store = Store()
    async with open_late_registry(store.opening, RegistryLimits()) as registry:
        assert registry.is_open
        assert isinstance(await registry.register_connection(NEW, 90.0), Registered)
        registry.limits = RegistryLimits(max_listed=1)
        assert len(await registry.list_active_by_agent("A")) == 1
        assert store.open == 1
    assert (store.open, store.tries) == (0, 1)


async def test_one_that_does_not_is_tried_again_until_it_does(autojump_clock: MockClock) -> None:
    store = Store(answers_at=trio.current_time() + 60.0)
    async with open_late_registry(store.opening, RegistryLimits()) as registry:
        with pytest.raises(RegistryUnavailableError, match="since this router was started"):
            await registry.list_active_by_agent("a")
        registry.limits = RegistryLimits(max_connections_per_agent=7)
        await trio.sleep(60 + RETRY_INTERVAL)
        assert isinstance(await registry.register_connection(NEW, 90.0), Registered)
        assert registry.limits.max_connections_per_agent == 7
        assert store.tries == 1 + 60 // (RETRY_INTERVAL + 1)
    assert store.open == 0


async def test_what_an_operator_has_to_mend_is_told_at_once(autojump_clock: MockClock) -> None:
    store = Store(refuses=True)
    with pytest.RaisesGroup(RegistryRefusedError, flatten_subgroups=True, allow_unwrapped=True):
        async with open_late_registry(store.opening, RegistryLimits()):
            raise AssertionError("unreachable")
    assert store.tries == 1
