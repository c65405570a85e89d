"""A router dials the IP address that a session comes from, and no other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.protocols.dialback import eligible, stands_for
from agentmesh.protocols.dialback.eligible import ip_of
from agentmesh.testing.strategies import addresses
from agentmesh.types import Address

SOURCE = "/ip4/203.0.113.7/tcp/50000"
PEER = "12D3KooWD3eckifWpRn9wQpMG9R9hX3sD158z7EqHWmweQAJU5SA"


def dialled(asked: str, source: str | None = SOURCE, *, loopback: bool = False) -> list[str]:
    seen = None if source is None else Address.parse(source)
    return [str(address) for address in eligible([Address.parse(asked)], seen, loopback=loopback)]


@pytest.mark.parametrize(
    ("asked", "source", "expected"),
    [
        ("/ip4/203.0.113.7/tcp/5002", SOURCE, "/ip4/203.0.113.7/tcp/5002"),
        ("/ip4/0.0.0.0/tcp/5002", SOURCE, "/ip4/203.0.113.7/tcp/5002"),
        ("/ip4/0.0.0.0/tcp/5002/ws", SOURCE, "/ip4/203.0.113.7/tcp/5002/ws"),
        (f"/ip4/0.0.0.0/tcp/5002/p2p/{PEER}", SOURCE, "/ip4/203.0.113.7/tcp/5002"),
        ("/ip4/0.0.0.0/tcp/5002", "/ip6/::ffff:203.0.113.7/tcp/9", "/ip4/203.0.113.7/tcp/5002"),
        ("/ip6/::/tcp/5002", "/ip6/2001:db8::7/tcp/9", "/ip6/2001:db8::7/tcp/5002"),
        ("/ip6/2001:db8::7/tcp/5002", "/ip6/2001:db8:0::7/tcp/9", "/ip6/2001:db8::7/tcp/5002"),
    ],
)
def test_where_the_member_comes_from_is_dialled(asked: str, source: str, expected: str) -> None:
    assert dialled(asked, source) == [expected]


@pytest.mark.parametrize(
    ("asked", "source"),
    [
        ("/ip4/203.0.113.8/tcp/5002", SOURCE),  # somebody else
        ("/ip4/192.168.1.5/tcp/5002", SOURCE),  # behind a NAT
        ("/ip4/127.0.0.1/tcp/5002", SOURCE),
        ("/ip6/::/tcp/5002", SOURCE),
        ("/dns4/victim.example/tcp/5002", SOURCE),
        ("/memory/7", SOURCE),
        (f"/ip4/203.0.113.7/tcp/5002/p2p/{PEER}/p2p-circuit", SOURCE),
        ("/ip4/0.0.0.0/tcp/5002", None),
        ("/ip4/0.0.0.0/tcp/5002", "/memory/7"),
        ("/ip4/203.0.113.7/tcp/1", f"{SOURCE}/p2p/{PEER}/p2p-circuit"),  # another router is where that comes from
        ("/ip4/0.0.0.0/tcp/22", "/ip4/0.0.0.0/tcp/50000"),
        ("/ip4/127.0.0.1/tcp/22", "/ip4/127.0.0.1/tcp/50000"),
        ("/ip4/0.0.0.0/tcp/22", "/ip4/127.0.0.1/tcp/50000"),
        ("/ip6/::/tcp/22", "/ip6/::1/tcp/50000"),
    ],
)
def test_nobody_else_is_dialled(asked: str, source: str | None) -> None:
    assert dialled(asked, source) == []


def test_the_loopback_is_dialled_where_that_is_all_there_is() -> None:
    assert dialled("/ip4/0.0.0.0/tcp/1", "/ip4/127.0.0.1/tcp/2", loopback=True) == ["/ip4/127.0.0.1/tcp/1"]


def test_the_same_is_dialled_once() -> None:
    both = [Address.parse(f"/ip4/{ip}/tcp/5002") for ip in ("0.0.0.0", "203.0.113.7")]
    assert eligible(both, Address.parse(SOURCE)) == (both[1],)


@given(st.lists(addresses(), max_size=8), addresses())
def test_whatever_is_asked_the_ip_is_the_sources(asked: list[Address], source: Address) -> None:
    for address in eligible(asked, source, loopback=True):
        assert ip_of(address) == ip_of(source)
        assert any(stands_for(one, address) for one in asked)


@pytest.mark.parametrize(
    ("asked", "answered", "expected"),
    [
        ("/ip4/0.0.0.0/tcp/1", "/ip4/203.0.113.7/tcp/1", True),
        (f"/ip4/203.0.113.7/tcp/1/p2p/{PEER}", "/ip4/203.0.113.7/tcp/1", True),
        ("/ip4/0.0.0.0/tcp/1", "/ip4/203.0.113.7/tcp/2", False),
        ("/ip4/0.0.0.0/tcp/1", "/ip4/203.0.113.7/tcp/1/ws", False),
        ("/ip4/0.0.0.0/tcp/1", "/ip4/0.0.0.0/tcp/1", False),
        ("/ip4/0.0.0.0/tcp/1", "/ip6/2001:db8::7/tcp/1", False),
        ("/ip4/203.0.113.7/tcp/1", "/ip4/203.0.113.8/tcp/1", False),
        ("/dns4/a.example/tcp/1", "/ip4/203.0.113.8/tcp/1", False),
        ("/ip4/203.0.113.8/tcp/1", "/memory/1", False),
    ],
)
def test_which_answer_belongs_to_which_question(asked: str, answered: str, expected: bool) -> None:
    assert stands_for(Address.parse(asked), Address.parse(answered)) is expected
