"""What may be reached, in a word."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.agent import rule_of
from agentmesh.pool.agent.access import AccessPolicy
from agentmesh.pool.agent.config import ConfigError
from agentmesh.protocols.pool import Open


def may_reach(rule: str, protocol: str, host: str, port: int, *addresses: str) -> bool:
    """Whether a rule alone lets an open reach its target, at all of these addresses."""
    policy, request = AccessPolicy((rule_of(rule),)), Open("", protocol, host, port)
    found = [ipaddress.ip_address(address) for address in addresses or (host,)]
    return policy.may_ask(request) and policy.permitted(request, found) == tuple(found)


@pytest.mark.parametrize(
    ("rule", "allowed", "forbidden"),
    [
        (
            "tcp://10.0.0.0/8:22",
            [("tcp", "10.1.2.3", 22), ("tcp", "nas.lan", 22, "10.1.2.3")],
            [("http", "10.1.2.3", 22), ("tcp", "10.1.2.3", 23), ("tcp", "11.1.2.3", 22), ("tcp", "a", 22, "1.1.1.1")],
        ),
        (
            "192.168.1.5:80,443,8000-8999",
            [("tcp", "192.168.1.5", 80), ("https", "192.168.1.5", 443), ("http", "192.168.1.5", 8500)],
            [("tcp", "192.168.1.5", 81), ("tcp", "192.168.1.6", 80), ("tcp", "192.168.1.5", 9000)],
        ),
        (
            "tcp://*.lan@192.168.0.0/16:22",
            [("tcp", "nas.lan", 22, "192.168.7.7")],
            [("tcp", "nas.lan", 22, "10.0.0.1"), ("tcp", "lan", 22, "192.168.7.7"), ("tcp", "192.168.7.7", 22)],
        ),
        (
            "https://api.example.com:443",
            [("https", "api.example.com", 443, "93.184.216.34"), ("https", "API.example.com.", 443, "93.184.216.34")],
            [
                ("https", "api.example.com", 443, "10.0.0.1"),  # a name that leads into the house
                ("https", "api.example.com", 443, "169.254.169.254"),
                ("https", "www.example.com", 443, "93.184.216.34"),
                ("https", "93.184.216.34", 443),
            ],
        ),
        ("[fd00::/8]:22", [("tcp", "fd00::1", 22)], [("tcp", "fe80::1", 22), ("tcp", "fd00::1", 23)]),
        ("[::1]:22", [("tcp", "::1", 22)], [("tcp", "127.0.0.1", 22)]),
        ("box@[fd00::/8]:22", [("tcp", "box", 22, "fd00::1")], [("tcp", "fd00::1", 22)]),
        ("127.0.0.1", [("tcp", "127.0.0.1", 1), ("http", "127.0.0.1", 65535)], [("tcp", "127.0.0.2", 1)]),
        ("*:443", [("tcp", "1.1.1.1", 443)], [("tcp", "10.0.0.1", 443), ("tcp", "127.0.0.1", 443)]),
        ("0.0.0.0/0:*", [("tcp", "1.1.1.1", 25)], [("tcp", "10.0.0.1", 25)]),
    ],
)
def test_a_rule_and_what_it_allows(
    rule: str, allowed: list[tuple[str, str, int]], forbidden: list[tuple[str, str, int]]
) -> None:
    assert [one for one in allowed if not may_reach(rule, *one)] == []
    assert [one for one in forbidden if may_reach(rule, *one)] == []


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("", "no rule"),
        ("tcp://", "no rule"),
        ("tcp://10.0.0.0/8:22/x", "no rule"),
        ("udp://10.0.0.0/8:53", "the protocol is tcp, http, https"),
        ("10.1.2.3/8:22", "is no network"),
        ("10.0.0.0/33", "is no network"),
        ("10.0.0.0/8:0", "ports: from 1 to 65535"),
        ("10.0.0.0/8:70000", "ports: from 1 to 65535"),
        ("10.0.0.0/8:90-80", "ports: from 1 to 65535"),
        ("10.0.0.0/8:,", "ports"),
        ("10.0.0.0/8:ssh", "no rule"),
        ("localhost:22", "127.0.0.0/8"),
        ("tcp://db.localhost.:22", "127.0.0.0/8"),
        ("nas.lan@db.lan:22", "is no network"),
        ("127.1:22", "spelling"),
        ("fd00::/8", "no rule"),
        ("*.10.0.0.0/8", "is no network"),
        ("a_very bad name", "no rule"),
        ("-x.example:22", "no name of a host"),
    ],
)
def test_what_is_no_rule(rule: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        rule_of(rule)
    assert "such as tcp://10.0.0.0/8:22" in str(caught.value)


@given(st.text(st.sampled_from("tcp:/@*[]10.,-nas ¹"), max_size=30))
def test_whatever_is_written_is_a_rule_or_none(text: str) -> None:
    try:
        rule_of(text)
    except ConfigError as exc:
        assert text in str(exc) or repr(text) in str(exc)
