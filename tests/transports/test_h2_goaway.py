"""GOAWAY over HTTP/2: a proxy that is reloaded sends one, and goes on with the streams that are open."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.transports.h2_flow import Way
from tests.transports.test_h2_machine import connected, deliver, frame

GOAWAY = 7
ALL_STREAMS = 2**31 - 1  # what a server names that does not know yet which will be its last


def goaway(last_stream: int, error: int = 0, more: bytes = b"") -> bytes:
    return frame(GOAWAY, last_stream.to_bytes(4) + error.to_bytes(4) + more)


@pytest.mark.parametrize("last_stream", [1, ALL_STREAMS])
def test_a_farewell_leaves_what_is_open(last_stream: int) -> None:
    client, flow, server, accepted = connected()
    client.receive_data(goaway(last_stream, more=b"reloading"), 0.0)
    server.send(accepted, memoryview(b"hello"))
    client.send(flow, memoryview(b"and back"))
    deliver(client, server)
    assert client.take(flow, 10) == b"hello"
    assert server.take(accepted, 10) == b"and back"
    client.end(flow)
    deliver(client, server)
    server.end(accepted)
    deliver(client, server)
    assert flow.receiving is Way.ENDED
    assert client.failure is None


@given(st.lists(st.integers(1, 40), max_size=8))
def test_a_farewell_may_come_in_pieces_and_amid_others(cuts: list[int]) -> None:
    client, flow, server, accepted = connected()
    server.send(accepted, memoryview(b"before"))
    data = server.data_to_send() + goaway(ALL_STREAMS)
    server.send(accepted, memoryview(b" and behind"))
    data += server.data_to_send() + goaway(1)
    for cut in cuts:
        client.receive_data(data[:cut], 0.0)
        data = data[cut:]
    client.receive_data(data, 0.0)
    assert client.take(flow, 100) == b"before and behind"
    assert client.failure is None


@pytest.mark.parametrize("said", [goaway(0), goaway(1, error=11), goaway(ALL_STREAMS, error=1)])
def test_any_other_breaks_what_has_not_ended(said: bytes) -> None:
    client, flow, server, accepted = connected()
    server.send(accepted, memoryview(b"before"))
    client.receive_data(server.data_to_send() + said, 0.0)
    assert client.failure is not None
    assert "GOAWAY" in client.failure
    assert flow.receiving is Way.BROKEN
    assert client.take(flow, 10) == b"before"


def test_our_own_is_followed_by_the_end_of_the_connection() -> None:
    client, flow, server, _ = connected()
    server.close()
    client.receive_data(server.data_to_send(), 0.0)
    assert client.failure is None
    client.fail("the peer hung up")
    assert flow.receiving is Way.BROKEN
