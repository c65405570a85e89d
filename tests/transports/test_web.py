import pytest

from agentmesh.transports.web import WebTarget
from agentmesh.types import Address


@pytest.mark.parametrize(
    ("text", "scheme", "authority"),
    [
        ("/dns4/r1.example/tcp/80/ws", "http", "r1.example"),
        ("/dns4/r1.example/tcp/443/ws", "http", "r1.example:443"),
        ("/dns4/r1.example/tcp/443/wss", "https", "r1.example"),
        ("/dns4/r1.example/tcp/8443/tls/ws", "https", "r1.example:8443"),
        ("/ip4/1.2.3.4/tcp/443/tls/ws", "https", "1.2.3.4"),
        ("/ip6/2001:db8::1/tcp/443/tls/ws", "https", "[2001:db8::1]"),
        ("/ip4/1.2.3.4/tcp/443/tls/sni/r1.example/ws", "https", "r1.example"),
        ("/dns4/bücher.example/tcp/443/wss", "https", "xn--bcher-kva.example"),
        ("/ip4/1.2.3.4/tcp/443/tls/sni/אב1.example/ws", "https", "xn--1-zhcd.example"),
        ("/ip6/2001:db8::1/tcp/10443/tls/sni/r1.example/ws", "https", "r1.example:10443"),
    ],
)
def test_a_request_names_the_host_that_the_certificate_is_for(text: str, scheme: str, authority: str) -> None:
    """As browsers do: virtual hosts are told apart by it, and the scheme's own port is left out."""
    target = WebTarget.of(Address.parse(text), "ws", "wss")
    assert target is not None
    assert (target.scheme, target.authority) == (scheme, authority)
