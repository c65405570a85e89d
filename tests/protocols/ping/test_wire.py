import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.errors import RemoteProtocolError
from agentmesh.protocols.ping.wire import PING_BYTES, PingReader

PIECES = st.lists(st.binary(max_size=70), max_size=8)


@given(PIECES)
def test_pings_come_out_whole_however_they_were_cut(pieces: list[bytes]) -> None:
    reader, sent = PingReader(), b"".join(pieces)
    got = b""
    for piece in pieces:
        pings = reader.feed(piece)
        assert len(pings) % PING_BYTES == 0
        got += pings
    assert got == sent[: len(sent) - len(sent) % PING_BYTES]


@given(PIECES)
def test_a_stream_ends_between_pings_or_breaks_the_protocol(pieces: list[bytes]) -> None:
    reader = PingReader()
    for piece in pieces:
        reader.feed(piece)
    if sum(map(len, pieces)) % PING_BYTES:
        with pytest.raises(RemoteProtocolError):
            reader.finish()
    else:
        reader.finish()
