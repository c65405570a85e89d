"""How a node opens tunnels: by the first router that has a way, and with an error that says whose fault it is."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.abc import Admission, Stream
from agentmesh.errors import AddressError, DialError, NotConnectedError
from agentmesh.node import TunnelError, TunnelTarget
from agentmesh.node.tunnels import ROUTER_TIMEOUT, TUNNEL_BUDGET, Tunnels, reason_of
from agentmesh.protocols.pool import (
    ACCEPTED,
    DIAL_ID,
    Code,
    Open,
    OpenResult,
    Stage,
    answer_open,
    dial_protocol,
    receive_open,
)
from agentmesh.runtime.host import Host
from agentmesh.testing.network import MemoryNetwork
from agentmesh.types import PeerId
from tests.forward.worlds import TARGET, read_all
from tests.runtime.hosts import open_named

OFFLINE = OpenResult(Stage.SELECTION, Code.AGENT_OFFLINE, retryable=True)
STALE = OpenResult(Stage.RELAY, Code.AGENT_OFFLINE, retryable=True)
FULL = OpenResult(Stage.QUEUE, Code.QUEUE_FULL, retryable=True, retry_after_ms=1500)
FORBIDDEN = OpenResult(Stage.AUTHORIZATION, Code.FORBIDDEN)
REFUSED = OpenResult(Stage.CONNECT, Code.CONNECTION_REFUSED)
GONE = OpenResult(Stage.RELAY, Code.NETWORK_UNREACHABLE, retryable=True)
SLOW_NAME = OpenResult(Stage.DNS, Code.TIMEOUT, retryable=True)
SILENT = None  # no answer at all


@attrs.define
class Router:
    """Answers every open with one result."""

    result: OpenResult | None
    host: Host | None = None
    opens: list[Open] = attrs.Factory(list[Open])
    cut: int = 0  # of those without an answer

    async def serve(self, stream: Stream) -> None:
        self.opens.append(await receive_open(stream, DIAL_ID))
        if self.result is None:
            await stream.wait_broken()
            self.cut += 1
            return
        await answer_open(stream, self.result)
        if self.result.accepted:
            await stream.send_all(b"hello from the target")
            await stream.send_eof()
            await read_all(stream)

    @property
    def peer(self) -> PeerId:
        assert self.host is not None
        return self.host.peer


@asynccontextmanager
async def open_world(*results: OpenResult | None) -> AsyncGenerator[tuple[Host, Tunnels, Sequence[Router]]]:
    """A client that is attached to routers, in this order."""
    network = MemoryNetwork(seed=1)
    routers = [Router(result) for result in results]
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(open_named(network, "client", [], listen=()))
        for number, router in enumerate(routers):
            spoken = [dial_protocol(router.serve, Admission.ANYONE)]
            router.host = await stack.enter_async_context(open_named(network, f"router{number}", spoken))
            await client.connect(router.peer, router.host.addresses)
        yield client, Tunnels(client, lambda: [router.peer for router in routers], Random(1)), routers


def asked(routers: Sequence[Router]) -> list[int]:
    return [len(router.opens) for router in routers]


async def test_a_tunnel_is_asked_for_once_and_its_bytes_are_the_targets(autojump_clock: MockClock) -> None:
    async with open_world(ACCEPTED, ACCEPTED) as (_, tunnels, routers):
        async with await tunnels.open("devbox", TARGET) as stream:
            assert await read_all(stream) == b"hello from the target"
        assert asked(routers) == [1, 0]
        [request] = routers[0].opens
        assert (request.agent_id, request.protocol) == ("devbox", "tcp")
        assert (request.target_host, request.target_port) == ("db.internal", 5432)
        assert len(request.trace_id) == 16
        await (await tunnels.open("devbox", TARGET)).aclose()
        assert routers[0].opens[1].trace_id != request.trace_id


@pytest.mark.parametrize("result", [OFFLINE, STALE, GONE, SILENT], ids=["offline", "stale", "gone", "silent"])
async def test_a_router_without_a_way_is_followed_by_the_next(
    result: OpenResult | None, autojump_clock: MockClock
) -> None:
    async with open_world(result, ACCEPTED) as (_, tunnels, routers):
        async with await tunnels.open("devbox", TARGET) as stream:
            assert await read_all(stream) == b"hello from the target"
        assert asked(routers) == [1, 1]
        assert routers[0].opens == routers[1].opens


async def test_a_router_that_does_not_speak_it_is_followed_by_the_next(autojump_clock: MockClock) -> None:
    network = MemoryNetwork(seed=1)
    router = Router(ACCEPTED)
    spoken = [dial_protocol(router.serve, Admission.ANYONE)]
    async with (
        open_named(network, "client", [], listen=()) as client,
        open_named(network, "old", []) as old,
        open_named(network, "new", spoken) as new,
    ):
        for host in (old, new):
            await client.connect(host.peer, host.addresses)
        tunnels = Tunnels(client, lambda: [old.peer, new.peer], Random(1))
        async with await tunnels.open("devbox", TARGET) as stream:
            assert await read_all(stream) == b"hello from the target"


async def test_a_router_that_is_gone_is_not_asked(autojump_clock: MockClock) -> None:
    async with open_world(ACCEPTED, ACCEPTED) as (client, tunnels, routers):
        session = client.session(routers[0].peer)
        assert session is not None
        await session.aclose()
        await (await tunnels.open("devbox", TARGET)).aclose()
        assert asked(routers) == [0, 1]


@pytest.mark.parametrize("result", [FORBIDDEN, REFUSED, FULL, SLOW_NAME])
async def test_what_is_the_same_everywhere_is_not_tried_again(result: OpenResult, autojump_clock: MockClock) -> None:
    async with open_world(result, ACCEPTED) as (_, tunnels, routers):
        with pytest.raises(TunnelError) as caught:
            await tunnels.open("devbox", TARGET)
        assert asked(routers) == [1, 0]
        error = caught.value
        assert isinstance(error, DialError)
        assert error.result == result
        assert error.retryable is result.retryable
        assert error.retry_after == (1.5 if result is FULL else None)
        assert error.trace_id == routers[0].opens[0].trace_id
        assert str(error) == f"no tunnel to tcp://db.internal:5432 by agent 'devbox': {reason_of(result)}"


@pytest.mark.parametrize(("first", "second"), [(OFFLINE, GONE), (GONE, OFFLINE), (GONE, GONE), (STALE, OFFLINE)])
async def test_of_several_answers_the_one_that_says_most_is_told(
    first: OpenResult, second: OpenResult, autojump_clock: MockClock
) -> None:
    async with open_world(first, second) as (_, tunnels, routers):
        with pytest.raises(TunnelError) as caught:
            await tunnels.open("devbox", TARGET)
        assert asked(routers) == [1, 1]
        assert caught.value.result == (GONE if (first, second) == (GONE, GONE) else OFFLINE)


async def test_all_routers_together_have_a_budget(autojump_clock: MockClock) -> None:
    began = trio.current_time()
    async with open_world(*[SILENT] * 4) as (_, tunnels, routers):
        with pytest.raises(TunnelError, match=r"no answer in time \(queue: timeout\)"):
            await tunnels.open("devbox", TARGET)
        assert TUNNEL_BUDGET <= trio.current_time() - began < TUNNEL_BUDGET + 1
        assert asked(routers) == [1, 1, 1, 0]
        assert 8 < ROUTER_TIMEOUT < TUNNEL_BUDGET / 2  # a router has 8 seconds itself, and two have their turn


async def test_without_a_router_there_is_nobody_to_ask(autojump_clock: MockClock) -> None:
    async with open_world() as (_, tunnels, _):
        with pytest.raises(NotConnectedError):
            await tunnels.open("devbox", TARGET)


async def test_a_name_that_no_agent_has_is_not_asked_for(autojump_clock: MockClock) -> None:
    async with open_world(ACCEPTED) as (_, tunnels, routers):
        for agent in ("", "a b", "a" * 129):
            with pytest.raises(AddressError, match="is no agent's ID"):
                await tunnels.open(agent, TARGET)
        assert asked(routers) == [0]


async def test_whoever_gives_up_leaves_no_tunnel(autojump_clock: MockClock) -> None:
    async with open_world(SILENT) as (_, tunnels, routers):
        with trio.move_on_after(1) as scope:
            await tunnels.open("devbox", TARGET)
        assert scope.cancelled_caught
        await wait_all_tasks_blocked()
        assert (asked(routers), routers[0].cut) == ([1], 1)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("tcp://db.internal:5432", "db.internal", 5432),
        ("TCP://192.0.2.7:1", "192.0.2.7", 1),
        ("tcp://[2001:DB8::0:7]:65535", "2001:db8::7", 65535),
        ("tcp://::1:22", "::1", 22),
        ("tcp://DB.Internal:22", "db.internal", 22),
        ("tcp://my_host.:22", "my_host.", 22),
        ("tcp://bücher.example:443", "xn--bcher-kva.example", 443),
    ],
)
def test_a_target_as_text(text: str, host: str, port: int) -> None:
    target = TunnelTarget.parse(text)
    assert target == TunnelTarget(host, port)
    assert TunnelTarget.parse(str(target)) == target


@pytest.mark.parametrize(
    "text",
    ["", "db:5432", "udp://h:1", "tcp://h", "tcp://:1", "tcp://h:0", "tcp://h:65536", "tcp://h:http", "tcp://a b:1",
     "tcp://h/:1", "tcp://u@h:1", "tcp://-h:1", "tcp://h\n:1", "tcp://[:1", f"tcp://{'a' * 254}:1", "tcp://h:٣"],
)  # fmt: skip
def test_what_is_no_target(text: str) -> None:
    with pytest.raises(AddressError):
        TunnelTarget.parse(text)


@pytest.mark.parametrize("code", Code)
@pytest.mark.parametrize("stage", Stage)
def test_every_result_has_words(stage: Stage, code: Code) -> None:
    words = reason_of(OpenResult(stage, code, retry_after_ms=2500))
    assert words.endswith(f"({stage}: {code}, worth trying again in 2.5 s)")
