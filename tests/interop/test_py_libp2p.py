"""What only py-libp2p is asked: Noise, first or alone, and to renew a reservation when told to."""

import pytest

from agentmesh.errors import DialError, RejectedError
from tests.interop.circuits import attach, open_router
from tests.interop.hosts import open_our_host
from tests.interop.peer import PY, open_peer


async def test_it_offers_noise_first_and_takes_tls() -> None:
    async with open_our_host() as host, open_peer(PY, "--security", "noise", "--security", "tls") as peer:
        await peer.do("connect", address=host.addresses[0])
        await peer.do("ping", peer=host.peer)


async def test_a_peer_without_tls_is_turned_away() -> None:
    async with open_our_host() as host, open_peer(PY, "--security", "noise") as peer:
        assert not (await peer.ask("connect", address=host.addresses[0]))["ok"]
        with pytest.raises(DialError) as failure:
            await host.connect(peer.peer, [peer.address])
        assert isinstance(failure.value.__cause__, RejectedError)
        assert host.statistics().connections.peers == 0


async def test_a_reservation_outlives_its_renewal() -> None:
    async with open_router(PY) as router, open_peer(PY) as peer:
        await attach(peer, router)
        assert (await peer.do("reserve", relay=router.host.peer))["granted"]
        found = router.relay.statistics()
        assert (found.reservations, found.granted) == (1, 2)
