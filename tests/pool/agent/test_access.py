import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.pool.agent.access import AccessPolicy, IPAddress, TargetError, embedded, host_of, special_network
from agentmesh.pool.agent.config import ConfigError
from agentmesh.protocols.pool import Open

PUBLIC = "93.184.216.34"
IPV4 = st.integers(0, 2**32 - 1).map(ipaddress.IPv4Address)


def asked(
    host: str = "example.com", port: int = 443, protocol: str = "tcp", host_header: str = "", tls_server_name: str = ""
) -> Open:
    return Open("agent", protocol, host, port, 1, "", host_header, tls_server_name)


def policy(*rules: dict[str, object]) -> AccessPolicy:
    return AccessPolicy.read(list(rules))


def allowed(rules: AccessPolicy, request: Open, *addresses: str) -> list[str]:
    return [str(one) for one in rules.permitted(request, [ipaddress.ip_address(text) for text in addresses])]


ANYTHING = policy({})
EVERYTHING = policy({"networks": ["0.0.0.0/0", "::/0"]})

SPECIAL = [
    *("127.0.0.1", "127.255.0.1", "10.1.2.3", "172.31.0.1", "192.168.0.1", "169.254.169.254", "100.64.0.1"),
    *("0.0.0.0", "224.0.0.1", "255.255.255.255", "198.18.0.1", "192.0.2.1"),
    *("::", "::1", "fe80::1", "fc00::1", "fd00:ec2::254", "ff02::1", "2001:db8::1", "64:ff9b:1::1"),
    *("::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1", "2002:7f00:1::", "::7f00:1", "::10.0.0.1"),
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
]


@pytest.mark.parametrize("address", SPECIAL)
def test_no_special_address_is_reached_unless_it_is_named(address: str) -> None:
    for rules in (ANYTHING, EVERYTHING):
        assert allowed(rules, asked(), address, PUBLIC) == [PUBLIC]


@pytest.mark.parametrize("address", ["127.0.0.1", "::ffff:127.0.0.1", "64:ff9b::7f00:1"])
def test_a_special_address_that_is_named_is_reached(address: str) -> None:
    found = str(ipaddress.ip_address(address))
    assert allowed(policy({"networks": ["127.0.0.1/32", "::/0"]}), asked(), address) == [found]
    assert allowed(policy({"networks": ["126.0.0.0/7", "::/0"]}), asked(), address) == []


@pytest.mark.parametrize("address", ["0.0.0.0", "224.0.0.1", "255.255.255.255", "ff02::1"])
def test_some_are_never_reached(address: str) -> None:
    named = str(ipaddress.ip_network(address))
    assert allowed(policy({"networks": [named]}), asked(), address) == []


@given(IPV4)
def test_what_is_not_global_is_special(address: ipaddress.IPv4Address) -> None:
    assert address.is_global or special_network(address) is not None


@given(IPV4, st.sampled_from(["::ffff:", "64:ff9b::", "::"]))
def test_an_address_in_another_is_judged_as_itself(inner: ipaddress.IPv4Address, prefix: str) -> None:
    outer = ipaddress.IPv6Address(int(ipaddress.IPv6Address(f"{prefix}0.0.0.0")) | int(inner))
    if int(outer) > 1:
        assert inner in embedded(outer)
        if special_network(inner) is not None:
            assert EVERYTHING.permitted(asked(), [outer]) == ()


@pytest.mark.parametrize(
    "host",
    [
        *("127.1", "2130706433", "0x7f000001", "0x7f.1", "017700000001", "127.0.0.01", "1.2.3", "a.0x1", "1.2.3.4.5"),
        *("", ".", "a..b", "-a.b", "a_.b-", "exa mple.com", "a/b", "a@b", "a:80", "[::1", "fe80::1%eth0", "a" * 64),
        "b\u00fccher.example",
    ],
)
def test_what_is_no_host(host: str) -> None:
    with pytest.raises(TargetError):
        host_of(host)


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("Example.COM.", "example.com"),
        ("localhost", "localhost"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("10.0.0.1", ipaddress.ip_address("10.0.0.1")),
        ("[::1]", ipaddress.ip_address("::1")),
        ("0:0::1", ipaddress.ip_address("::1")),
    ],
)
def test_a_host_in_any_spelling(text: str, host: str | IPAddress) -> None:
    assert host_of(text) == host


# ── rules ──


def test_without_a_rule_nothing_is_allowed() -> None:
    assert not AccessPolicy().may_ask(asked())
    assert allowed(AccessPolicy(), asked(), PUBLIC) == []


def test_protocols_ports_and_hosts() -> None:
    rules = policy(
        {"protocols": ["tcp"], "ports": [22, "8000-8999"], "hosts": ["example.com", "*.example.com"]},
        {"protocols": ["https"]},
    )
    for request, may in [
        (asked("example.com", 22), True),
        (asked("EXAMPLE.com.", 8500), True),
        (asked("a.b.example.com", 8999), True),
        (asked("example.com", 23), False),
        (asked("example.com", 9000), False),
        (asked("badexample.com", 22), False),
        (asked("example.com.evil.org", 22), False),
        (asked("anything.org", 443, "https"), True),
        (asked("anything.org", 0, "https"), False),
        (asked("example.com", 22, "icmp-echo"), False),
    ]:
        assert rules.may_ask(request) is may, request
        assert bool(allowed(rules, request, PUBLIC)) is (may or request.target_port == 0), request


def test_the_first_rule_that_matches_decides() -> None:
    rules = policy(
        {"allow": False, "networks": ["10.0.0.0/16"]},
        {"allow": False, "hosts": ["secret.example.com"]},
        {"networks": ["10.0.0.0/8"]},
    )
    assert allowed(rules, asked(), "10.0.1.1", "10.1.0.1", "11.0.0.1") == ["10.1.0.1"]
    assert allowed(rules, asked("secret.example.com"), "10.1.0.1") == []


def test_a_name_given_to_the_target_is_held_to_the_rules_too() -> None:
    rules = policy({"allow": False, "hosts": ["admin.example.com"]}, {"hosts": ["*.example.com"]})
    for name, may in [("api.example.com", True), ("x.org", False), ("admin.example.com", False), ("a b", None)]:
        for request in (asked("www.example.com", host_header=name), asked("www.example.com", tls_server_name=name)):
            if may is None:
                with pytest.raises(TargetError):
                    rules.permitted(request, [ipaddress.ip_address(PUBLIC)])
            else:
                assert bool(allowed(rules, request, PUBLIC)) is may


def test_a_host_header_may_have_a_port() -> None:
    rules = policy({"hosts": ["www.example.com", "::1"]})
    for header in ("www.example.com:8080", "www.example.com", "[::1]:80", "[::1]"):
        assert rules.may_ask(asked("www.example.com", host_header=header)), header


def test_no_more_addresses_are_looked_at_than_a_name_should_have() -> None:
    assert len(allowed(ANYTHING, asked(), *[f"11.0.0.{n}" for n in range(200)])) == 16


@pytest.mark.parametrize(
    "values",
    [
        {},
        ["allow"],
        [{"allow": "yes"}],
        [{"colour": 1}],
        [{"protocols": ["tpc"]}],
        [{"allow": False, "protocols": ["TCP"]}],
        [{"hosts": "example.com"}],
        [{"hosts": [""]}],
        [{"hosts": ["*.10.0.0.1"]}],
        [{"hosts": ["0x7f.1"]}],
        [{"networks": ["10.0.0.1/8"]}],
        [{"networks": ["everything"]}],
        [{"ports": [0]}],
        [{"ports": [65536]}],
        [{"ports": ["9-8"]}],
        [{"ports": ["1-2-3"]}],
        [{"ports": [True]}],
        [{"ports": ["-1"]}],
    ],
)
def test_rules_that_mean_nothing(values: object) -> None:
    with pytest.raises(ConfigError):
        AccessPolicy.read(values)
