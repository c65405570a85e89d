"""Reservations and circuits through our relay, with a peer that nobody here wrote at one end or at both."""

import re

import pytest

from agentmesh.errors import DialError, RejectedError
from agentmesh.protocols.relay import Status
from tests.interop.circuits import attach, open_member, open_router
from tests.interop.hosts import ECHO, MIB, TEN_MIB, echo
from tests.interop.peer import KINDS, Kind, open_peer

every_kind = pytest.mark.parametrize("kind", KINDS, ids=str)
NOISE_FIRST = ("--security", "noise", "--security", "tls")
PAIRS = [(near, far) for near in KINDS for far in KINDS if near.listen == far.listen]


@pytest.mark.parametrize(("near_kind", "far_kind"), PAIRS, ids=str)
async def test_a_circuit_between_two_of_them(near_kind: Kind, far_kind: Kind) -> None:
    """In a circuit they secure themselves as they like; js-libp2p does not read py-libp2p's certificates."""
    liking = () if near_kind.name == far_kind.name else NOISE_FIRST
    async with (
        open_router(near_kind) as router,
        open_peer(near_kind, *liking) as near,
        open_peer(far_kind, *liking) as far,
    ):
        await near.do("connect", address=router.address)
        router.admit(near.peer)
        await attach(far, router)
        await near.do("relay_connect", address=router.to(far.peer))
        answer = await near.do("echo", peer=far.peer, size=TEN_MIB)
        assert answer["received"] == answer["sent"]
        back = await far.do("echo", peer=near.peer, size=MIB)
        assert back["received"] == back["sent"]
        found = router.relay.statistics()
        assert (found.reservations, found.circuits, found.opened) == (1, 1, 1)
        assert found.relayed_bytes > 2 * TEN_MIB


@every_kind
async def test_a_circuit_from_one_of_them_to_us(kind: Kind) -> None:
    async with open_router(kind) as router, open_member(router, kind) as member, open_peer(kind) as peer:
        await peer.do("connect", address=router.address)
        router.admit(peer.peer)
        await peer.do("relay_connect", address=router.to(member.peer))
        answer = await peer.do("echo", peer=member.peer, size=TEN_MIB)
        assert answer["received"] == answer["sent"]
        session = member.session(peer.peer)
        assert session is not None
        assert session.address == router.to(peer.peer)


@every_kind
async def test_a_circuit_from_us_to_one_of_them(kind: Kind) -> None:
    async with open_router(kind) as router, open_member(router, kind) as member, open_peer(kind) as peer:
        await attach(peer, router)
        await member.connect(peer.peer, [router.to(peer.peer)])
        await echo(await member.open_stream(peer.peer, ECHO), TEN_MIB)
        await peer.do("ping", peer=member.peer)


@every_kind
async def test_no_reservation_without_admission(kind: Kind) -> None:
    async with open_router(kind) as router, open_peer(kind) as peer:
        await peer.do("connect", address=router.address)
        assert not (await peer.do("reserve", relay=router.host.peer))["granted"]
        assert router.relay.statistics().refusals[Status.PERMISSION_DENIED] == 1


@every_kind
async def test_no_circuit_without_a_reservation(kind: Kind) -> None:
    async with (
        open_router(kind) as router,
        open_member(router, kind) as member,
        open_peer(kind) as near,
        open_peer(kind) as far,
    ):
        for peer in (near, far):
            await peer.do("connect", address=router.address)
            router.admit(peer.peer)
        refusal = await near.ask("relay_connect", address=router.to(far.peer))
        assert re.search(rf"\b({Status.NO_RESERVATION.value}|NO_RESERVATION)\b", refusal["error"])
        with pytest.raises(DialError) as failure:
            await member.connect(far.peer, [router.to(far.peer)])
        cause = failure.value.__cause__
        assert isinstance(cause, DialError)
        assert isinstance(cause.__cause__, RejectedError)


@every_kind
async def test_a_circuit_ends_with_the_session_in_it(kind: Kind) -> None:
    async with open_router(kind) as router, open_member(router, kind) as member, open_peer(kind) as peer:
        await attach(peer, router)
        session = await member.connect(peer.peer, [router.to(peer.peer)])
        assert router.relay.statistics().circuits == 1
        await session.aclose()
        await peer.do("wait_connected", peer=member.peer, connected=False)
        await echo(await router.host.open_stream(peer.peer, ECHO), 1)  # the session below it goes on
        assert router.relay.statistics().circuits == 0
