import errno
import ipaddress
from collections.abc import Sequence

import attrs
import pytest
import trio
from trio.testing import MockClock, memory_stream_pair

from agentmesh.pool.agent.access import AccessPolicy, IPAddress
from agentmesh.pool.agent.targets import CONNECT_TIMEOUT, RESOLVE_TIMEOUT, Connector, dial_address, resolve_name
from agentmesh.protocols.pool import Code, Open, OpenResult, Stage

PUBLIC, OTHER = "93.184.216.34", "93.184.216.35"
LOCAL = AccessPolicy.read([{"networks": ["127.0.0.0/8"]}])


def asked(host: str = "example.com", port: int = 80, protocol: str = "tcp") -> Open:
    return Open("agent", protocol, host, port, 1)


@attrs.define
class Internet:
    """What names lead to, one answer after another, and what happens at addresses."""

    answers: list[list[str] | OSError | None]
    errors: dict[str, int | None] = attrs.Factory(dict[str, int | None])  # None: no answer
    asked: list[str] = attrs.Factory(list[str])
    dialled: list[str] = attrs.Factory(list[str])

    async def resolve(self, name: str) -> Sequence[IPAddress]:
        self.asked.append(name)
        answer = self.answers.pop(0)
        if answer is None:
            await trio.sleep_forever()
        if isinstance(answer, OSError):
            raise answer
        return [ipaddress.ip_address(text) for text in answer or []]

    async def dial(self, address: IPAddress, port: int) -> trio.abc.HalfCloseableStream:
        self.dialled.append(str(address))
        await trio.lowlevel.checkpoint()
        if str(address) in self.errors:
            number = self.errors[str(address)]
            if number is None:
                await trio.sleep_forever()
            raise OSError(number, "no")
        return memory_stream_pair()[0]

    def connector(self, *rules: dict[str, object]) -> Connector:
        return Connector(AccessPolicy.read(list(rules or ({},))), self.resolve, self.dial)


async def test_a_name_is_resolved_once_and_what_was_judged_is_connected_to(autojump_clock: MockClock) -> None:
    """The second answer would lead to the machine itself: it is never asked for."""
    internet = Internet([[PUBLIC], ["127.0.0.1"]])
    assert not isinstance(await internet.connector().connect(asked()), OpenResult)
    assert (internet.asked, internet.dialled) == (["example.com"], [PUBLIC])


async def test_only_the_good_ones_of_its_addresses_are_connected_to(autojump_clock: MockClock) -> None:
    internet = Internet([["127.0.0.1", "169.254.169.254", PUBLIC]])
    await internet.connector().connect(asked())
    assert internet.dialled == [PUBLIC]


@pytest.mark.parametrize(
    ("request_", "answers"),
    [
        (asked("127.0.0.1"), []),
        (asked("0x7f000001"), []),
        (asked("example.com", 25), []),
        (asked("rebound.example"), [["127.0.0.1"]]),
    ],
)
async def test_what_is_forbidden_is_not_even_tried(
    autojump_clock: MockClock, request_: Open, answers: list[list[str] | OSError | None]
) -> None:
    internet = Internet(answers)
    result = await internet.connector({"ports": [80]}).connect(request_)
    assert result == OpenResult(Stage.POLICY, Code.FORBIDDEN)
    assert internet.dialled == []
    assert len(internet.asked) == len([request_.target_host] if "rebound" in request_.target_host else [])


@pytest.mark.parametrize(
    ("answer", "result", "seconds"),
    [
        (OSError("no such name"), OpenResult(Stage.DNS, Code.HOST_UNREACHABLE), 0.0),
        ([], OpenResult(Stage.DNS, Code.HOST_UNREACHABLE), 0.0),
        (None, OpenResult(Stage.DNS, Code.TIMEOUT, retryable=True), RESOLVE_TIMEOUT),
    ],
)
async def test_a_name_that_leads_nowhere(
    autojump_clock: MockClock, answer: list[str] | OSError | None, result: OpenResult, seconds: float
) -> None:
    assert await Internet([answer]).connector().connect(asked()) == result
    assert trio.current_time() == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ECONNREFUSED, Code.CONNECTION_REFUSED),
        (errno.ENETUNREACH, Code.NETWORK_UNREACHABLE),
        (errno.EHOSTUNREACH, Code.HOST_UNREACHABLE),
        (errno.ETIMEDOUT, Code.TIMEOUT),
        (errno.EMFILE, Code.INTERNAL_ERROR),
        (None, Code.TIMEOUT),
    ],
)
async def test_a_target_that_does_not_answer(autojump_clock: MockClock, number: int | None, code: Code) -> None:
    internet = Internet([[PUBLIC, OTHER]], {PUBLIC: number, OTHER: number})
    assert await internet.connector().connect(asked()) == OpenResult(Stage.CONNECT, code)
    assert internet.dialled == [PUBLIC, OTHER]
    assert trio.current_time() == pytest.approx(0.0 if number else CONNECT_TIMEOUT)


async def test_the_next_address_is_tried(autojump_clock: MockClock) -> None:
    internet = Internet([[PUBLIC, OTHER]], {PUBLIC: None})
    assert not isinstance(await internet.connector().connect(asked()), OpenResult)


async def test_what_no_port_serves(autojump_clock: MockClock) -> None:
    result = await Internet([]).connector().connect(asked(protocol="icmp-echo"))
    assert result == OpenResult(Stage.PROTOCOL, Code.UNSUPPORTED_CAPABILITY)


async def test_real_sockets() -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    async with listeners[0]:
        stream = await Connector(LOCAL).connect(asked("localhost", port))
        assert not isinstance(stream, OpenResult)
        await stream.aclose()
    assert await Connector(LOCAL).connect(asked("127.0.0.1", port)) == OpenResult(
        Stage.CONNECT, Code.CONNECTION_REFUSED
    )
    with pytest.raises(OSError):
        await dial_address(ipaddress.ip_address("127.0.0.1"), port)
    assert ipaddress.ip_address("127.0.0.1") in await resolve_name("localhost")
