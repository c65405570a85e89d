"""Dials that fail: the error says why, for each address, and the host can dial again."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import cast

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.abc import ByteStream, Listener, Transport
from agentmesh.errors import AddressError, DialError, PeerMismatchError, RemoteProtocolError, SessionClosedError
from agentmesh.identity import Identity
from agentmesh.runtime.config import HostConfig
from agentmesh.runtime.host import Host, open_host
from agentmesh.runtime.nursery import open_background
from agentmesh.testing.network import MemoryNetwork
from agentmesh.types import Address
from tests.runtime.hosts import dials, far, open_named, works

NOBODY = Address.parse("/memory/99")
STRANGER = Identity.generate().peer


async def test_an_address_that_names_another_peer_is_left_out() -> None:
    network = MemoryNetwork()
    async with open_named(network, "bob") as bob, open_named(network, "alice") as alice:
        with pytest.raises(DialError, match=r"no address .* \(2 given\)"):
            await alice.connect(STRANGER, [*bob.addresses, Address.parse("/ip4/192.0.2.1/tcp/1")])
        assert dials(network) == 0


async def test_a_host_does_not_dial_itself() -> None:
    async with open_named(MemoryNetwork(), "alice") as alice:
        with pytest.raises(DialError, match="itself"):
            await alice.connect(alice.peer, alice.addresses)


async def test_one_failure_is_the_cause_itself() -> None:
    network = MemoryNetwork()
    async with open_named(network, "bob") as bob, open_named(network, "alice") as alice:
        place = bob.addresses[0].without_peer()
        with pytest.raises(DialError) as caught:
            await alice.connect(STRANGER, [place])
        assert isinstance(caught.value.__cause__, PeerMismatchError)
        assert str(bob.peer) in str(caught.value)
        assert alice.statistics().dialing == 0
        await wait_all_tasks_blocked()
        assert len(bob.connections) == 0
        assert await works(alice, bob)


async def test_several_failures_are_all_told_each_with_its_address(autojump_clock: MockClock) -> None:
    network = far()
    async with (
        open_named(network, "bob") as bob,
        open_named(network, "carol"),
        open_named(network, "alice") as alice,
        _listen_and_say(network, "plain", b"HTTP/1.1 400 Bad Request\r\n\r\n") as plain,
        _listen_and_say(network, "quiet", b"") as quiet,
    ):
        network.block("alice", "carol")
        blocked = Address.parse("/memory/2")
        refused, wrong = NOBODY, bob.addresses[0].without_peer()
        start = trio.current_time()
        with pytest.raises(DialError) as caught:
            await alice.connect(STRANGER, [refused, wrong, plain, quiet, blocked])
        assert trio.current_time() - start == pytest.approx(15)
        text = str(caught.value)
        for address, reason in [
            (refused, "nobody ever listened"),
            (wrong, "dialled"),
            (plain, "expected /multistream"),
            (quiet, "no answer in time"),
            (blocked, "no answer in time"),
        ]:
            assert f"{address}: {reason}" in text
        cause = cast("ExceptionGroup[Exception]", caught.value.__cause__)
        kinds = {type(error) for error in cause.exceptions}
        assert kinds == {DialError, PeerMismatchError, RemoteProtocolError, trio.TooSlowError}


@asynccontextmanager
async def _listen_and_say(network: MemoryNetwork, name: str, said: bytes) -> AsyncGenerator[Address]:
    """Somebody who takes connections, says something, and waits."""

    async def handle(stream: trio.abc.Stream, source: Address | None) -> None:
        if said:
            await stream.send_all(said)
        await trio.sleep_forever()

    async with network.transport(name).listen(Address.parse("/memory/0")) as listener, open_background() as nursery:
        nursery.start_soon(listener.serve, handle)
        yield listener.addresses[0]


@pytest.mark.parametrize("timeout", [5.0, 15.0])
async def test_a_dial_that_nobody_answers_ends(autojump_clock: MockClock, timeout: float) -> None:
    network = MemoryNetwork()
    async with (
        open_named(network, "bob") as bob,
        open_named(network, "alice", config=HostConfig(dial_timeout=timeout)) as alice,
    ):
        network.block("alice", "bob")
        start = trio.current_time()
        with pytest.raises(DialError, match="no answer in time") as caught:
            await alice.connect(bob.peer, bob.addresses)
        assert trio.current_time() - start == pytest.approx(timeout)
        assert caught.value.__cause__ is None
        await wait_all_tasks_blocked()
        assert alice.statistics().dialing == 0
        network.heal("alice", "bob")
        assert await works(alice, bob)


@pytest.mark.parametrize("timeout", [2.0, 10.0])
async def test_a_peer_that_does_not_shake_hands_is_given_up(autojump_clock: MockClock, timeout: float) -> None:
    network = MemoryNetwork()
    async with (
        _listen_and_say(network, "quiet", b"") as quiet,
        open_named(network, "alice", config=HostConfig(handshake_timeout=timeout)) as alice,
    ):
        start = trio.current_time()
        with pytest.raises(DialError, match="no answer in time") as caught:
            await alice.connect(STRANGER, [quiet])
        assert isinstance(caught.value.__cause__, trio.TooSlowError)
        assert trio.current_time() - start == pytest.approx(timeout)


class Refusal(AbstractAsyncContextManager[ByteStream]):
    """A dial that fails."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def __aenter__(self) -> ByteStream:
        await trio.lowlevel.checkpoint()
        raise self._error

    async def __aexit__(self, *_: object) -> None:
        raise AssertionError("it was never entered")


class Choosy(Transport):
    """Says that it can dial everything, and then cannot."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def can_dial(self, address: Address) -> bool:
        return True

    def can_listen(self, address: Address) -> bool:
        return False

    def dial(self, address: Address) -> AbstractAsyncContextManager[ByteStream]:
        return Refusal(self._error)

    def listen(self, address: Address) -> AbstractAsyncContextManager[Listener]:
        raise AddressError("it does not listen")


@pytest.mark.parametrize(
    "error",
    [AddressError("not like this"), trio.BrokenResourceError(), SessionClosedError("the router's"), DialError("no")],
    ids=repr,
)
async def test_whatever_a_transport_raises_of_ours_is_a_failed_attempt(error: Exception) -> None:
    async with open_host(identity=Identity.generate(), transports=[Choosy(error)]) as host:
        with pytest.raises(DialError, match=str(error) or "BrokenResourceError") as caught:
            await host.connect(STRANGER, [NOBODY])
        assert caught.value.__cause__ is error
        assert host.statistics().dialing == 0


async def test_a_host_that_closes_ends_its_dials_for_those_who_still_wait(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with open_named(network, "bob") as bob, trio.open_nursery() as nursery:
        start = trio.current_time()

        async def dial(host: Host) -> None:
            with pytest.raises(DialError, match="no answer in time"):
                await host.connect(bob.peer, bob.addresses)
            assert trio.current_time() == start

        async with open_named(network, "alice") as alice:
            network.block("alice", "bob")
            nursery.start_soon(dial, alice)
            await wait_all_tasks_blocked()
