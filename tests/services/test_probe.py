"""Whether a service's server answers."""

import socket

import trio
from starlette.applications import Starlette
from trio.testing import MockClock

from agentmesh.services import answers
from agentmesh.services.probe import PROBE_TIMEOUT


async def test_an_application_always_answers() -> None:
    assert await answers(Starlette())


async def test_a_server_answers_when_it_takes_connections() -> None:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/base"
    assert await answers(url)
    await listener.aclose()
    assert not await answers(url)


async def test_a_server_that_says_nothing_is_given_up(autojump_clock: MockClock) -> None:
    with socket.socket() as bound, socket.socket() as first:
        bound.bind(("127.0.0.1", 0))
        bound.listen(0)
        first.connect(bound.getsockname())  # and nobody takes it: the next waits
        first_second = socket.socket()
        with first_second:
            first_second.setblocking(False)
            first_second.connect_ex(bound.getsockname())
            assert not await answers(f"http://127.0.0.1:{bound.getsockname()[1]}")
            assert trio.current_time() >= PROBE_TIMEOUT
