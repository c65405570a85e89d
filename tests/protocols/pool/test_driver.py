"""Control streams and opens between two hosts, in virtual time."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import MockClock, memory_stream_pair, wait_all_tasks_blocked

from agentmesh.abc import Admission, Stream
from agentmesh.errors import ErrorCode, RejectedError, RemoteProtocolError, SessionClosedError
from agentmesh.protocols.pool import (
    ACCEPTED,
    OPEN_ID,
    POOL_ID,
    Ack,
    AgentSide,
    Code,
    ConnEpoch,
    Control,
    DrainReason,
    Hello,
    Open,
    OpenResult,
    RouterSide,
    Stage,
    Stats,
    answer_open,
    open_control,
    open_protocol,
    open_target,
    pool_protocol,
    receive_open,
)
from agentmesh.protocols.pool.driver import OPEN_TIMEOUT
from agentmesh.protocols.pool.events import (
    Drained,
    DrainReceived,
    HelloReceived,
    Joined,
    PeerLeft,
    PeerSilent,
    Refused,
    RttMeasured,
    StatsReceived,
)
from agentmesh.runtime.host import Host
from agentmesh.runtime.messages import WRITE_TIMEOUT
from agentmesh.runtime.registry import Protocol, Serve
from agentmesh.runtime.session import MuxSession
from agentmesh.testing.cancellation import cancel_at_every_await
from agentmesh.wire.framing import encode_frame
from tests.protocols.ping.test_driver import two_hosts

HELLO = Hello("agent", "instance", "connection", epoch=ConnEpoch(1))
ACK = Ack("agent", ConnEpoch(7), connection_pool_supported=True, max_connections_per_agent=8)
REQUEST = Open("agent", "tcp", "example.com", 22, stream_id=1)


@attrs.define
class Router:
    """Takes whoever comes, and keeps what it hears."""

    ack: Ack = ACK
    heard: list[object] = attrs.Factory(list[object])
    controls: list[Control[RouterSide]] = attrs.Factory(list[Control[RouterSide]])

    def protocol(self) -> Protocol:
        return pool_protocol(self.serve, Admission.ANYONE)

    async def serve(self, stream: Stream) -> None:
        async with open_control(RouterSide(trio.current_time()), stream) as control:
            self.controls.append(control)
            while True:
                try:
                    event = await control.next_event()
                except trio.EndOfChannel:
                    await control.finish()
                    return
                self.heard.append(event)
                if isinstance(event, HelloReceived):
                    control.tell(lambda machine: machine.send_ack(self.ack, trio.current_time()))


@asynccontextmanager
async def connection(router: Router) -> AsyncGenerator[tuple[Control[AgentSide], Stream]]:
    async with (
        two_hosts([router.protocol()]) as (dialer, listener),
        await dialer.open_stream(listener.peer, POOL_ID) as stream,
        open_control(AgentSide(trio.current_time()), stream) as control,
    ):
        control.tell(lambda machine: machine.send_hello(HELLO, trio.current_time()))
        yield control, stream


async def test_an_agent_joins_talks_and_leaves(autojump_clock: MockClock) -> None:
    router = Router()
    async with connection(router) as (control, stream):
        assert await control.next_event() == Joined(ACK)
        control.tell(lambda machine: machine.send_stats(Stats(active_streams=2)))
        assert isinstance(await control.next_event(), RttMeasured)
        control.tell(lambda machine: machine.send_drain(DrainReason.SCALE_DOWN, trio.current_time()))
        assert await control.next_event() == Drained()
        assert trio.current_time() == pytest.approx(1.0)
        await stream.send_eof()
        await wait_all_tasks_blocked()
    assert HelloReceived(HELLO) in router.heard
    assert StatsReceived(Stats(active_streams=2)) in router.heard
    assert sum(isinstance(event, DrainReceived) for event in router.heard) == 2
    assert router.heard[-1] == PeerLeft()


async def test_a_refusal_arrives_before_the_end(autojump_clock: MockClock) -> None:
    refusal = Ack("agent", registered=False, accepted=False, retry_after_ms=100)
    async with connection(Router(refusal)) as (control, _):
        assert await control.next_event() == Refused(refusal)
        with pytest.raises(trio.EndOfChannel):
            await control.next_event()
        assert trio.current_time() == 0.0


async def test_an_idle_connection_lives_and_a_dead_one_is_noticed(autojump_clock: MockClock) -> None:
    router = Router()
    async with connection(router) as (control, _):
        with trio.move_on_after(95):
            while True:
                event = await control.next_event()
                assert isinstance(event, Joined | RttMeasured)
        assert sum(isinstance(event, RttMeasured) for event in router.heard) == 10
    near, _far = memory_stream_pair()
    async with open_control(RouterSide(trio.current_time()), near) as silent:
        assert await silent.next_event() == PeerSilent()


async def test_a_peer_that_breaks_the_protocol(autojump_clock: MockClock) -> None:
    near, far = memory_stream_pair()
    async with open_control(RouterSide(trio.current_time()), near) as control:
        await far.send_all(encode_frame(b"[]"))
        with pytest.raises(RemoteProtocolError):
            await control.next_event()


async def test_a_stream_that_breaks(autojump_clock: MockClock) -> None:
    async with connection(Router()) as (control, stream):
        assert await control.next_event() == Joined(ACK)
        assert isinstance(stream.session, MuxSession)
        stream.session.abort("gone")
        with pytest.raises(SessionClosedError):
            while True:
                await control.next_event()
        await control.finish()


async def test_a_peer_that_does_not_read(autojump_clock: MockClock) -> None:
    near, _far = trio.testing.lockstep_stream_pair()
    async with open_control(AgentSide(trio.current_time()), near) as control:
        control.tell(lambda machine: machine.send_hello(HELLO, trio.current_time()))
        with pytest.raises(trio.TooSlowError):
            await control.next_event()
        assert trio.current_time() == pytest.approx(WRITE_TIMEOUT)


# ── opens ──


@asynccontextmanager
async def agent_that(serve: Protocol) -> AsyncGenerator[tuple[Host, Host]]:
    async with two_hosts([serve]) as (router, agent):
        yield router, agent


async def echo(stream: Stream) -> None:
    request = await receive_open(stream)
    await answer_open(stream, ACCEPTED)
    await stream.send_all(f"{request.target_host}:{request.target_port} ".encode())
    while data := await stream.receive_some():
        await stream.send_all(data)
    await stream.send_all(b" bye")


ECHO = open_protocol(echo, Admission.ANYONE)


async def test_bytes_follow_an_accepted_open(autojump_clock: MockClock) -> None:
    async with agent_that(ECHO) as (router, agent):
        session = router.session(agent.peer)
        assert session is not None
        opening = await open_target(session, REQUEST)
        assert opening.result == ACCEPTED
        assert opening.stream is not None
        async with opening.stream as stream:
            await stream.send_all(b"hello")
            await stream.send_eof()
            said = b""
            while data := await stream.receive_some():
                said += data
        assert said == b"example.com:22 hello bye"


async def test_bytes_sent_before_the_result_are_the_targets(autojump_clock: MockClock) -> None:
    async with agent_that(ECHO) as (router, agent):
        stream = await router.open_stream(agent.peer, OPEN_ID)
        body = b'{"agent_id":"a","protocol":"tcp","target_host":"h","target_port":1,"stream_id":1}'
        await stream.send_all(encode_frame(body) + b"early")
        await stream.send_eof()
        said = b""
        while data := await stream.receive_some():
            said += data
        assert said.endswith(b"h:1 early bye")


async def refuse(stream: Stream) -> None:
    await receive_open(stream)
    await answer_open(stream, OpenResult(Stage.CONNECT, Code.CONNECTION_REFUSED))


async def sleep(stream: Stream) -> None:
    await receive_open(stream)
    await trio.sleep_forever()


async def hang_up(stream: Stream) -> None:
    await receive_open(stream)


async def babble(stream: Stream) -> None:
    await receive_open(stream)
    await stream.send_all(b"\xff" * 20)


async def boast(stream: Stream) -> None:
    await receive_open(stream)
    await stream.send_all(encode_frame(bytes(2000)))


async def be_full(stream: Stream) -> None:
    raise RejectedError("full", ErrorCode.RESOURCE_LIMIT_EXCEEDED)


NO_NETWORK = OpenResult(Stage.RELAY, Code.NETWORK_UNREACHABLE, retryable=True)


@pytest.mark.parametrize(
    ("serve", "result", "seconds"),
    [
        (refuse, OpenResult(Stage.CONNECT, Code.CONNECTION_REFUSED), 0.0),
        (sleep, OpenResult(Stage.QUEUE, Code.TIMEOUT, retryable=True), OPEN_TIMEOUT),
        (hang_up, NO_NETWORK, 0.0),
        (babble, NO_NETWORK, 0.0),
        (boast, NO_NETWORK, 0.0),
        (be_full, OpenResult(Stage.QUEUE, Code.QUEUE_FULL, retryable=True), 0.0),
    ],
)
async def test_an_open_that_comes_to_nothing(
    autojump_clock: MockClock, serve: Serve, result: OpenResult, seconds: float
) -> None:
    async with agent_that(open_protocol(serve, Admission.ANYONE)) as (router, agent):
        session = router.session(agent.peer)
        assert session is not None
        opening = await open_target(session, REQUEST)
        assert (opening.result, opening.stream) == (result, None)
        assert trio.current_time() == pytest.approx(seconds)
        await wait_all_tasks_blocked()
        assert session.streams == ()


async def test_an_open_where_nobody_speaks_it_or_may(autojump_clock: MockClock) -> None:
    gated = OpenResult(Stage.AUTHORIZATION, Code.FORBIDDEN)
    unknown = OpenResult(Stage.PROTOCOL, Code.UNSUPPORTED_CAPABILITY, retryable=True)
    cases: list[tuple[list[Protocol], OpenResult]] = [([], unknown), ([open_protocol(echo)], gated)]
    for protocols, result in cases:
        async with two_hosts(protocols) as (router, agent):
            session = router.session(agent.peer)
            assert session is not None
            assert (await open_target(session, REQUEST)).result == result
            session.abort("gone")
            assert (await open_target(session, REQUEST)).result == NO_NETWORK


async def test_an_open_cancelled_anywhere_leaves_nothing(autojump_clock: MockClock) -> None:
    async with agent_that(ECHO) as (router, agent):
        session = router.session(agent.peer)
        assert session is not None

        async def use() -> None:
            opening = await open_target(session, REQUEST)
            if opening.stream is not None:
                await opening.stream.aclose()

        async def check() -> None:
            await wait_all_tasks_blocked()
            assert session.streams == ()

        assert await cancel_at_every_await(use, check=check) >= 3


async def test_joining_cancelled_anywhere_leaves_nothing(autojump_clock: MockClock) -> None:
    async with two_hosts([Router().protocol()]) as (dialer, listener):

        async def join() -> None:
            async with (
                await dialer.open_stream(listener.peer, POOL_ID) as stream,
                open_control(AgentSide(trio.current_time()), stream) as control,
            ):
                control.tell(lambda machine: machine.send_hello(HELLO, trio.current_time()))
                await control.next_event()

        async def check() -> None:
            await wait_all_tasks_blocked()
            session = dialer.session(listener.peer)
            assert session is not None
            assert session.streams == ()

        assert await cancel_at_every_await(join, check=check) >= 3
