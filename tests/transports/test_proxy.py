"""What is reached through which proxy: URLs, NO_PROXY, the environment."""

import base64
import ipaddress
import os
import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.errors import AddressError
from agentmesh.transports.proxy import DIRECT, Proxy, ProxyRules
from agentmesh.transports.proxy_bypass import LOOPBACK, Bypass
from agentmesh.transports.tcp import TcpTransport

# ── URLs ──


@pytest.mark.parametrize(
    ("url", "host", "port", "text"),
    [
        ("http://proxy.example:3128", "proxy.example", 3128, "http://proxy.example:3128"),
        ("http://proxy.example:3128/", "proxy.example", 3128, "http://proxy.example:3128"),
        (" HTTP://Proxy.Example ", "proxy.example", 80, "http://proxy.example:80"),
        ("https://proxy.example", "proxy.example", 443, "https://proxy.example:443"),
        ("proxy.example:3128", "proxy.example", 3128, "http://proxy.example:3128"),
        ("10.1.2.3:8080", "10.1.2.3", 8080, "http://10.1.2.3:8080"),
        ("http://[2001:DB8::1]:3128", "2001:db8::1", 3128, "http://[2001:db8::1]:3128"),
        ("http://[::1]", "::1", 80, "http://[::1]:80"),
        ("proxy_1", "proxy_1", 80, "http://proxy_1:80"),
    ],
)
def test_urls(url: str, host: str, port: int, text: str) -> None:
    proxy = Proxy.parse(url)
    assert (proxy.host, proxy.port, str(proxy)) == (host, port, text)
    assert (proxy.tls is not None) == text.startswith("https")
    assert proxy.authorization is None


def test_an_https_proxy_is_verified_as_any_server_unless_told_otherwise() -> None:
    ours = ssl.create_default_context()
    assert Proxy.parse("https://h", tls=ours).tls is ours
    assert Proxy.parse("http://h", tls=ours).tls is None
    context = Proxy.parse("https://h").tls
    assert context is not None
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


@pytest.mark.parametrize(
    ("userinfo", "basic"),
    [
        ("user:secret", b"user:secret"),
        ("user", b"user:"),
        (":secret", b":secret"),
        ("us%40er:p%3Aa%2Fs%25%20s", b"us@er:p:a/s% s"),
        ("user:s3:cr3t", b"user:s3:cr3t"),
        ("user:gr%C3%BCn", "user:grün".encode()),
        ("user:a%0D%0AX: y", b"user:a\r\nX: y"),
    ],
)
def test_credentials_are_decoded_and_shown_to_the_proxy_alone(userinfo: str, basic: bytes) -> None:
    proxy = Proxy.parse(f"http://{userinfo}@proxy.example:1")
    assert proxy.authorization == f"Basic {base64.b64encode(basic).decode()}"
    rules = ProxyRules(proxy)
    for shown in (str(proxy), repr(proxy), repr(rules), str(rules)):
        assert "proxy.example" in shown
        assert userinfo not in shown
        assert "secret" not in shown
        assert "Basic" not in shown


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("", "no host"),
        ("http://", "no host"),
        ("http://:3128", "no host"),
        ("http://proxy:port", "not the URL"),
        ("http://proxy:70000", "not the URL"),
        ("http://proxy:0", "no host, or a port that is none"),
        ("http://pro xy:1", "no host"),
        ("http://[::1", "not the URL"),
        ("socks5://proxy:1080", "by http or https, not by socks5"),
        ("ftp://proxy", "by http or https, not by ftp"),
        ("http://proxy/proxy.pac", "no path"),
        ("http://proxy?x", "no path"),
        ("http://user:s3cr#et@proxy:1", "percent-encode"),
        ("http://user:s3cr/et@proxy:1", "percent-encode"),
        ("http://us%3Aer:s3cret@proxy:1", "no colon"),
        ("http://user:s3cret%FF@proxy:1", "not the URL"),
    ],
)
def test_what_is_no_proxy_is_refused_without_being_repeated(url: str, reason: str) -> None:
    with pytest.raises(AddressError, match=reason) as caught:
        Proxy.parse(url)
    assert "s3cr" not in str(caught.value)


@given(st.text(max_size=40))
def test_any_text_is_a_proxy_or_refused(text: str) -> None:
    try:
        proxy = Proxy.parse(text)
    except AddressError:
        return
    again = Proxy.parse(str(proxy), tls=proxy.tls)
    assert (again.host, again.port, again.tls) == (proxy.host, proxy.port, proxy.tls)


# ── NO_PROXY ──


@pytest.mark.parametrize(
    ("text", "host", "port", "holds"),
    [
        ("", "a.example", 443, False),
        ("*", "a.example", 443, True),
        ("x.example, *", "10.0.0.1", 443, True),
        ("example.com", "example.com", 443, True),
        ("example.com", "a.example.com", 443, True),
        ("example.com", "notexample.com", 443, False),
        ("example.com", "example.com.evil", 443, False),
        (".example.com", "a.b.example.com", 443, True),
        (".example.com", "example.com", 443, True),
        ("*.example.com", "a.example.com", 443, True),
        ("EXAMPLE.com", "Example.COM", 443, True),
        ("example.com.", "example.com", 443, True),
        ("example.com", "example.com.", 443, True),
        ("bücher.example", "a.xn--bcher-kva.example", 443, True),
        ("bü_cher.example", "xn--bcher-kva.example", 443, False),
        ("a,b c\n d", "c", 443, True),
        (",, ,", "a", 443, False),
        (".", "a", 443, False),
        ("example.com:443", "example.com", 443, True),
        ("example.com:443", "a.example.com", 443, True),
        ("example.com:443", "example.com", 80, False),
        ("example.com:http", "example.com", 80, False),
        ("10.0.0.1", "10.0.0.1", 443, True),
        ("10.0.0.1", "10.0.0.10", 443, False),
        ("10.0.0.1:80", "10.0.0.1", 80, True),
        ("10.0.0.1:80", "10.0.0.1", 81, False),
        ("10.0.0.0/8", "10.255.0.1", 443, True),
        ("10.1.2.3/8", "10.255.0.1", 443, True),  # bits of a host in it
        ("10.0.0.0/8", "11.0.0.1", 443, False),
        ("10.0.0.0/8", "a.10.0.0.0", 443, False),
        ("10.0.0.0/99", "10.0.0.1", 443, False),
        ("0.0.1", "10.0.0.1", 443, False),  # no domain: an IP address has none
        ("10.0.0.0/8", "::ffff:10.0.0.1", 443, True),
        ("fd00::/8", "fd12::1", 443, True),
        ("fd00::/8", "fe80::1", 443, False),
        ("::1", "::1", 443, True),
        ("[::1]", "0:0::1", 443, True),
        ("[2001:db8::1]:443", "2001:db8::1", 443, True),
        ("[2001:db8::1]:443", "2001:db8::1", 80, False),
        ("2001:db8::", "2001:db8::1", 443, False),
        ("169.254.0.0/16,fe80::/10", "fe80::1", 443, True),
        (LOOPBACK, "127.3.2.1", 443, True),
        (LOOPBACK, "::1", 443, True),
        (LOOPBACK, "localhost", 443, True),
        (LOOPBACK, "a.localhost", 443, True),
        (LOOPBACK, "0.0.0.0", 443, True),
        (LOOPBACK, "fe80::1", 443, False),
        (LOOPBACK, "10.0.0.1", 443, False),
    ],
)
def test_what_a_list_holds(text: str, host: str, port: int, holds: bool) -> None:
    assert Bypass.parse(text).holds(host, port) == holds


@given(st.ip_addresses(), st.integers(0, 128), st.ip_addresses())
def test_networks_are_those_of_ipaddress(
    base: ipaddress.IPv4Address | ipaddress.IPv6Address,
    bits: int,
    host: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    network = ipaddress.ip_network(f"{base}/{min(bits, base.max_prefixlen)}", strict=False)
    bypass = Bypass.parse(f"a.example,{network}")
    assert bypass.holds(str(base), 1)
    mapped = host.ipv4_mapped if isinstance(host, ipaddress.IPv6Address) else None
    assert bypass.holds(str(host), 1) == (host in network or (mapped is not None and mapped in network))


@given(st.text(max_size=60), st.text(max_size=30))
def test_any_text_is_a_list(text: str, host: str) -> None:
    assert isinstance(Bypass.parse(text).holds(host, 443), bool)


# ── rules ──

PROXY = Proxy.parse("http://proxy.example:3128")


def test_this_machine_is_reached_directly_unless_one_says_otherwise() -> None:
    rules = ProxyRules(PROXY)
    assert rules.proxy_for("router.example", 443) is PROXY
    assert [rules.proxy_for(host, 443) for host in ("localhost", "127.0.0.1", "::1")] == [None, None, None]
    assert ProxyRules(PROXY, Bypass()).proxy_for("127.0.0.1", 443) is PROXY
    assert ProxyRules(PROXY, Bypass.parse("router.example")).proxy_for("router.example", 443) is None
    assert DIRECT.proxy_for("router.example", 443) is None
    parsed = ProxyRules.parse("http://proxy.example:3128", "router.example")
    hosts = ("router.example", "127.0.0.1", "other.example")
    assert [parsed.proxy_for(host, 443) for host in hosts] == [None, None, PROXY]


@pytest.mark.parametrize(
    ("environment", "scheme", "proxy"),
    [
        ({}, "https", None),
        ({"HTTPS_PROXY": "http://a:1"}, "https", "http://a:1"),
        ({"https_proxy": "http://b:1", "HTTPS_PROXY": "http://a:1"}, "https", "http://b:1"),
        ({"HTTPS_PROXY": ""}, "https", None),
        ({"HTTPS_PROXY": "", "ALL_PROXY": "http://c:1"}, "https", "http://c:1"),
        ({"all_proxy": "http://c:1"}, "https", "http://c:1"),
        ({"HTTPS_PROXY": "http://a:1", "ALL_PROXY": "socks5://c:1"}, "https", "http://a:1"),
        ({"HTTPS_PROXY": "http://a:1", "NO_PROXY": "*"}, "https", None),
        ({"ALL_PROXY": "socks5://c:1", "NO_PROXY": "*"}, "https", None),
        ({"HTTP_PROXY": "http://a:1"}, "https", None),
        ({"HTTP_PROXY": "http://a:1"}, "http", "http://a:1"),
        ({"HTTP_PROXY": "http://a:1", "REQUEST_METHOD": "GET"}, "http", None),  # a header of a CGI request: Proxy
    ],
)
def test_the_environment(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], scheme: str, proxy: str | None
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found = ProxyRules.from_environment(scheme).proxy_for("router.example", 443)
    assert (found and str(found)) == proxy


def test_no_proxy_of_the_environment_adds_to_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://a:1")
    monkeypatch.setenv("no_proxy", "inside.example,10.0.0.0/8")
    rules = ProxyRules.from_environment()
    assert [
        host
        for host in ("router.inside.example", "10.0.0.1", "127.0.0.1", "router.example")
        if rules.proxy_for(host, 443)
    ] == ["router.example"]


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"])
def test_a_bad_variable_is_named_when_the_transport_is_made(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "socks5://user:secret@h:1")
    with pytest.raises(AddressError, match=f"^{name}: a proxy is reached by http or https, not by socks5$"):
        TcpTransport()
    TcpTransport(proxies=DIRECT)


def test_no_variable_of_this_machine_reaches_the_tests() -> None:
    assert [name for name in os.environ if name.lower().endswith("_proxy")] == []
