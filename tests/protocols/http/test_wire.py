import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.errors import RemoteProtocolError
from agentmesh.protocols.http.asgi import peer_of, scope_of
from agentmesh.protocols.http.events import RequestReceived
from agentmesh.protocols.http.wire import head_size, split_target
from agentmesh.types import PeerId

PEER = PeerId.from_ed25519(bytes(32))
TARGET = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=60).map(str.encode)


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        (b"/", b"/", b""),
        (b"/a%2Fb//c?x=%20&y", b"/a%2Fb//c", b"x=%20&y"),
        (b"/a?b?c", b"/a", b"b?c"),
        (b"/a?u=http://x/y", b"/a", b"u=http://x/y"),
        (b"http://peer.example/a?b", b"/a", b"b"),
        (b"http://peer.example?b", b"/", b"b"),
        (b"HTTP://peer.example", b"/", b""),
    ],
)
def test_a_target_is_split_and_nothing_in_it_changes(target: bytes, path: bytes, query: bytes) -> None:
    assert split_target("GET", target) == (path, query)


@pytest.mark.parametrize("target", [b"*", b"peer.example:80", b"a/b", b"?a", b"1http://x/"])
def test_a_target_that_is_no_path_is_refused(target: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        split_target("GET", target)


def test_options_may_ask_about_the_server_as_a_whole() -> None:
    assert split_target("OPTIONS", b"*") == (b"*", b"")


@given(TARGET)
def test_any_target_is_split_or_refused(target: bytes) -> None:
    try:
        path, query = split_target("GET", target)
    except RemoteProtocolError:
        return
    assert path.startswith(b"/")
    assert b"?" not in path
    assert target.endswith(path + (b"?" + query if query else b"")) or b"://" in target or target.endswith(b"?")


def test_the_head_is_measured_generously() -> None:
    assert head_size(b"/ab", ((b"a", b"bc"), (b"d", b""))) == 3 + 7 + 5


def test_the_scope_names_the_proved_peer_and_no_other() -> None:
    headers = ((b"host", b"h"), (b"x-peer-id", b"somebody else"), (b"a", b"1"), (b"a", b"2"))
    scope = scope_of(RequestReceived("GET", b"/a%2fb/%C3%BC", b"q=%20", headers, "1.1"), PEER, trio.sleep_forever)
    assert peer_of(scope) == PEER
    assert scope["client"] == (str(PEER), 0)
    assert scope["headers"] == [
        (b"host", b"h"),
        (b"a", b"1"),
        (b"a", b"2"),
        (b"x-peer-id", str(PEER).encode()),
    ]
    assert (scope["path"], scope["raw_path"], scope["query_string"]) == ("/a/b/ü", b"/a%2fb/%C3%BC", b"q=%20")
