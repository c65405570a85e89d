"""What becomes of the wildcard that a router listens on."""

import pytest

from agentmesh.router.addresses import dialable
from agentmesh.types import Address

LAN = {"192.0.2.1": "10.1.2.3", "2001:db8::1": "fd00::5"}


def addresses(*texts: str) -> list[Address]:
    return [Address.parse(text) for text in texts]


@pytest.mark.parametrize(
    ("listening", "routed", "alone"),
    [
        ("/ip4/0.0.0.0/tcp/5001", "/ip4/10.1.2.3/tcp/5001", "/ip4/127.0.0.1/tcp/5001"),
        ("/ip6/::/tcp/5001/ws", "/ip6/fd00::5/tcp/5001/ws", "/ip6/::1/tcp/5001/ws"),
        ("/ip4/127.0.0.1/tcp/5001", "/ip4/127.0.0.1/tcp/5001", "/ip4/127.0.0.1/tcp/5001"),
        ("/dns4/r1.example/tcp/443/wss", "/dns4/r1.example/tcp/443/wss", "/dns4/r1.example/tcp/443/wss"),
        ("/memory/7", "/memory/7", "/memory/7"),
    ],
)
def test_a_wildcard_becomes_this_machines_address(listening: str, routed: str, alone: str) -> None:
    assert list(dialable(addresses(listening), LAN.get)) == addresses(routed)
    assert list(dialable(addresses(listening), lambda _: None)) == addresses(alone)


def test_what_comes_out_twice_is_said_once() -> None:
    both = addresses("/ip4/0.0.0.0/tcp/5001", "/ip4/10.1.2.3/tcp/5001", "/ip4/10.1.2.3/tcp/5002")
    assert list(dialable(both, LAN.get)) == both[1:]


def test_this_machine_has_an_address_for_each_wildcard() -> None:
    for address in dialable(addresses("/ip4/0.0.0.0/tcp/1", "/ip6/::/tcp/1")):
        assert (address.value("ip4") or address.value("ip6")) not in ("0.0.0.0", "::", None)
