"""Fixtures: servers for the whole run, and a store with nothing in it, of each kind."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager

import pytest

from agentmesh.pool.registry import RegistryLimits
from tests.pool.registry.stores import Store, memory_store

Opener = Callable[[RegistryLimits], AbstractAsyncContextManager[Store]]
KINDS = ("memory",)


@pytest.fixture(params=KINDS)
def open_store(request: pytest.FixtureRequest) -> Opener:
    """Opens a store with nothing in it."""
    return opener(request, request.param)


def opener(request: pytest.FixtureRequest, kind: str) -> Opener:
    return {"memory": lambda: memory_store}[kind]()


@pytest.fixture
async def store(open_store: Opener) -> AsyncGenerator[Store]:
    async with open_store(RegistryLimits()) as opened:
        yield opened
