"""Floodsub with leaves that nobody here wrote, through a whole router of ours: they are admitted by the credential that
they show it, hear what our members publish, and are heard by them.
"""

from pathlib import Path

import pytest
import trio

from agentmesh.abc import Admission
from agentmesh.credentials import ROLE_NODE, ROLE_ROUTER
from agentmesh.protocols.auth.wire import AUTH_ID, decode_answer, encode_frame_message
from agentmesh.protocols.floodsub import FLOODSUB_ID, Fate
from agentmesh.router import Router
from agentmesh.wire.framing import FrameReader, encode_frame
from tests.interop.peer import JS, PY, Kind, Peer, open_peer
from tests.node.loopback import Loopback, open_loopback

TOPIC = "builds"
WORDS = 20


async def admit(mesh: Loopback, router: Router, peer: Peer) -> None:
    """The peer goes through the handshake with a credential of this mesh, and is shown the router's."""
    await peer.do("connect", address=router.host.addresses[0])
    shown = mesh.control_plane.authority.issue(peer.peer, ROLE_NODE, {}, "test").credential
    sent = encode_frame(encode_frame_message(shown)).hex()
    reader = FrameReader(65536)
    reader.receive_data(
        bytes.fromhex((await peer.do("exchange", peer=router.peer, protocol=AUTH_ID, sent=sent))["received"])
    )
    answer = decode_answer(reader.next_frame() or b"")
    assert answer.success
    assert mesh.control_plane.authority.verify(answer.token, router.peer).role == ROLE_ROUTER
    assert router.host.admissions.level(peer.peer) is Admission.MEMBER


@pytest.mark.parametrize("kind", [PY, JS], ids=str)
async def test_a_foreign_leaf_hears_our_members_and_is_heard(kind: Kind, tmp_path: Path) -> None:
    async with (
        open_loopback(tmp_path, "router") as mesh,
        await mesh.node() as alice,
        await mesh.node() as bob,
        open_peer(kind) as peer,
    ):
        (router,) = await mesh.wait_linked(alice, bob)
        assert (await peer.do("connect", address=router.host.addresses[0]))["peer"] == str(router.peer)
        refused = await peer.do("refused", peer=router.peer, protocol=FLOODSUB_ID)
        assert refused["refused"]
        await admit(mesh, router, peer)
        async with alice.subscribe(TOPIC) as heard, bob.subscribe(TOPIC) as heard_too:
            await peer.do("floodsub", peer=router.peer, topic=TOPIC)
            for number in range(WORDS):
                await alice.publish(TOPIC, f"ours {number}".encode())
            said = (await peer.do("heard", topic=TOPIC, count=WORDS))["messages"]
            assert said == [{"author": str(alice.peer), "text": f"ours {number}"} for number in range(WORDS)]
            for number in range(WORDS):
                await peer.do("publish", topic=TOPIC, text=f"theirs {number}")
            for reader, ours in ((heard, 0), (heard_too, WORDS)):
                with trio.fail_after(20):
                    messages = [await anext(reader) for _ in range(ours + WORDS)][ours:]
                assert {message.author for message in messages} == {peer.peer}
                assert {message.data.decode() for message in messages} == {f"theirs {n}" for n in range(WORDS)}
        found = router.floodsub.statistics()
        assert found.messages[Fate.ACCEPTED] == 2 * WORDS
        assert found.messages[Fate.REJECTED] == found.messages[Fate.DENIED] == 0
