import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.errors import LocalProtocolError
from agentmesh.protocols.floodsub.events import Role
from agentmesh.protocols.floodsub.link import TRANSITIONS, Input, Link, Outbox, State
from agentmesh.types import PeerId
from agentmesh.wire.framing import FrameReader

PEER = PeerId.from_ed25519(b"a" * 32)


def make_link(*inputs: Input) -> Link:
    link = Link(1, PEER, Role.LEAF, Outbox(10, 100), FrameReader(100))
    for got in inputs:
        link.step(got)
    return link


def test_every_cell_is_decided() -> None:
    assert set(TRANSITIONS) == set(itertools.product(State, Input))


@pytest.mark.parametrize("order", [(Input.HEAR, Input.TELL), (Input.TELL, Input.HEAR)])
def test_either_stream_may_come_first(order: tuple[Input, Input]) -> None:
    link = make_link(*order)
    assert (link.state, link.is_telling, link.is_gone) == (State.JOINED, True, False)
    for got in Input:
        if got in order:
            with pytest.raises(LocalProtocolError):
                link.step(got)


@pytest.mark.parametrize("last", [Input.END, Input.CUT])
@pytest.mark.parametrize("first", [(), (Input.HEAR,), (Input.TELL,), (Input.HEAR, Input.TELL)])
def test_the_end_may_come_at_any_time_and_stays(first: tuple[Input, ...], last: Input) -> None:
    link = make_link(*first, last)
    for got in (Input.RPC, Input.END, Input.CUT):
        link.step(got)
    assert link.is_gone
    assert not link.is_telling
    with pytest.raises(LocalProtocolError):
        link.step(Input.HEAR)


@given(st.lists(st.binary(min_size=1, max_size=30), max_size=30), st.integers(1, 60))
def test_what_waits_is_taken_in_order_and_within_the_bounds(frames: list[bytes], size: int) -> None:
    outbox, kept = Outbox(10, 100), list[bytes]()
    for frame in frames:
        fits = len(kept) < 10 and sum(map(len, kept)) + len(frame) <= 100
        assert outbox.push(frame) is fits
        kept += [frame] if fits else []
        assert (len(outbox), outbox.bytes) == (len(kept), sum(map(len, kept)))
    taken = list[bytes]()
    while data := outbox.take(size):
        assert len(data) <= max(size, 30)
        taken.append(data)
    assert b"".join(taken) == b"".join(kept)
    assert (len(outbox), outbox.bytes, outbox.take(size)) == (0, 0, b"")


def test_a_frame_larger_than_a_write_goes_alone() -> None:
    outbox = Outbox(10, 100)
    for frame in (b"a" * 50, b"b", b"c"):
        outbox.push(frame)
    assert [outbox.take(10), outbox.take(10)] == [b"a" * 50, b"bc"]
    outbox.push(b"d")
    outbox.clear()
    assert (len(outbox), outbox.bytes) == (0, 0)
