import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.services.headers import HOP_BY_HOP, end_to_end, relocated, without_mesh

HEADERS = st.lists(
    st.tuples(
        st.sampled_from([b"A", b"b", b"Set-Cookie", b"Connection", b"x-mesh-error", b"te"]), st.binary(max_size=9)
    )
)


def test_hop_by_hop_headers_stay_behind_and_those_that_connection_names() -> None:
    headers = [(b"A", b"1"), (b"Connection", b"close, X-Hop"), (b"x-hop", b"2"), (b"TE", b"trailers"), (b"a", b"3")]
    assert end_to_end(headers) == [(b"A", b"1"), (b"a", b"3")]
    assert end_to_end(headers, but=frozenset({b"a"})) == []


@given(HEADERS)
def test_what_passes_keeps_its_order_and_its_bytes(headers: list[tuple[bytes, bytes]]) -> None:
    passed = end_to_end(headers)
    rest = iter(headers)
    assert all(header in rest for header in passed)
    assert {name.lower() for name, _ in passed}.isdisjoint(HOP_BY_HOP)
    assert without_mesh(passed) == passed


@pytest.mark.parametrize(
    ("location", "seen"),
    [
        (b"http://127.0.0.1:8000/app/x?y", b"/mcp/tools/x?y"),
        (b"http://127.0.0.1:8000/app", b"/mcp/tools"),
        (b"/app/x", b"/mcp/tools/x"),
        (b"/app?x", b"/mcp/tools?x"),
        (b"/apple", b"/apple"),
        (b"x", b"x"),
        (b"", b""),
        (b"//example.org/app/x", b"//example.org/app/x"),
        (b"http://127.0.0.1:8000", b"http://127.0.0.1:8000"),
        (b"http://127.0.0.1:80001/app", b"http://127.0.0.1:80001/app"),
        (b"https://example.org/app", b"https://example.org/app"),
    ],
)
def test_redirects_within_a_service_lead_through_the_mesh(location: bytes, seen: bytes) -> None:
    headers = [(b"Location", location), (b"other", location)]
    found = relocated(headers, b"http://127.0.0.1:8000", b"/app", b"/mcp/tools")
    assert found == [(b"Location", seen), (b"other", location)]


def test_a_service_at_the_root_of_its_server() -> None:
    found = relocated([(b"location", b"http://h"), (b"location", b"/a")], b"http://h", b"", b"/http/x")
    assert found == [(b"location", b"/http/x/"), (b"location", b"/http/x/a")]
