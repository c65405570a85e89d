"""What an agent's log says of the connections that it has and loses, and what its router is told while all is well."""

import logging
from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from agentmesh.pool.agent.config import ConnectionsConfig
from agentmesh.pool.metrics import SCALE_DECISIONS, router_samples
from agentmesh.pool.router.attached import attached_to
from agentmesh.protocols.pool import DrainReason
from tests.pool.worlds import Cluster, open_cluster

LOGGER = "agentmesh.pool.agent.agent"


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Of each line its level and text. They are taken."""
    found = [(one.levelname, one.message) for one in caplog.records if one.name == LOGGER]
    caplog.clear()
    return found


async def test_a_router_that_lets_a_connection_go_is_in_the_log(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    async with open_cluster() as cluster, cluster.agent("i1"):
        await cluster.wait_for(1)
        await trio.sleep(1)
        assert said(caplog) == [("INFO", "connected")]
        pool = cluster.table.get("agent")
        assert pool is not None
        cluster.service.drain(pool.connections[0], DrainReason.SERVER_SHUTDOWN, timeout=30.0, retry_after=20.0)
        await trio.sleep(5)
        (told,) = [one for one in caplog.records if one.message == "the router lets a connection go"]
        assert (vars(told)["reason"], vars(told)["retry_after"]) == ("server_shutdown", 20.0)


def cut(cluster: Cluster) -> None:
    """The router ends a session."""
    pool = cluster.table.get("agent")
    assert pool is not None
    attached_to(pool.connections[0]).session.abort("gone")


def freeze(cluster: Cluster) -> None:
    """The router is heard of no more."""
    cluster.network.freeze("router")


@pytest.mark.parametrize("lose", [cut, freeze])
async def test_the_last_connection_that_is_lost_is_in_the_log_gravely(
    lose: Callable[[Cluster], None], autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    async with open_cluster() as cluster, cluster.agent("i1"):
        await cluster.wait_for(1)
        await trio.sleep(1)
        said(caplog)
        lose(cluster)
        await trio.sleep(60)
        assert ("WARNING", "connection ended") in said(caplog)


async def test_one_of_two_that_is_lost_is_no_reason_to_worry(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    async with open_cluster() as cluster, cluster.agent("i1", ConnectionsConfig(min=2, max=2)):
        await cluster.wait_for(2)
        await trio.sleep(1)
        said(caplog)
        cut(cluster)
        await trio.sleep(5)
        assert said(caplog)[0] == ("INFO", "connection ended")


async def test_an_agent_at_rest_tells_its_router_that_it_is(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, cluster.agent("i1"):
        await cluster.wait_for(1)
        await trio.sleep(30)
        told = [one for one in router_samples(cluster.table) if one.metric is SCALE_DECISIONS]
        assert [one.value for one in told] == [0, 0, 0]
