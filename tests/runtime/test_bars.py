"""A peer that is barred has no session with a host, whoever dials."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.abc import Admission
from agentmesh.errors import DialError, RejectedError
from agentmesh.identity import Identity
from agentmesh.runtime.admission import AdmissionBook
from agentmesh.runtime.host import Host, open_host
from agentmesh.testing import MemoryNetwork
from agentmesh.testing.links import Conditions
from agentmesh.types import PeerId
from tests.runtime.hosts import ANYWHERE, open_named


@asynccontextmanager
async def open_barring(network: MemoryNetwork) -> AsyncGenerator[tuple[Host, set[PeerId]]]:
    """A host, and whom it bars."""
    barred = set[PeerId]()
    async with open_host(
        identity=Identity.generate(),
        transports=[network.transport("host")],
        listen=[ANYWHERE],
        admissions=AdmissionBook(trio.current_time, is_barred=barred.__contains__),
    ) as host:
        yield host, barred


async def test_who_is_barred_is_not_dialled(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with open_barring(network) as (host, barred), open_named(network, "peer") as peer:
        barred.add(peer.peer)
        with pytest.raises(DialError, match="barred"):
            await host.connect(peer.peer, peer.addresses)
        barred.clear()
        assert (await host.connect(peer.peer, peer.addresses)).peer == peer.peer


async def test_who_is_barred_gets_no_session_by_dialling(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with open_barring(network) as (host, barred), open_named(network, "peer") as peer:
        barred.add(peer.peer)
        session = await peer.connect(host.peer, host.addresses)  # as far as it can tell
        with trio.fail_after(5):
            await session.ended.wait()
        assert (host.session(peer.peer), len(host.connections)) == (None, 0)
        assert host.connections.statistics().handshakes == 0


async def test_who_is_barred_while_he_is_dialled_is_left(autojump_clock: MockClock) -> None:
    network = MemoryNetwork(conditions=Conditions(latency=1.0))
    async with (
        open_barring(network) as (host, barred),
        open_named(network, "peer") as peer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(host.connect, peer.peer, peer.addresses)
        await wait_all_tasks_blocked()
        barred.add(peer.peer)
        await trio.sleep(30)
        assert (host.session(peer.peer), len(host.connections)) == (None, 0)
        assert peer.session(host.peer) is None


def test_who_is_barred_is_not_admitted() -> None:
    peer = Identity.generate().peer
    book = AdmissionBook(lambda: 0.0, is_barred={peer}.__contains__)
    with pytest.raises(RejectedError, match="barred"):
        book.admit(peer, Admission.MEMBER, 1.0)
    assert len(book) == 0
