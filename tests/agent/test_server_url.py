"""Where an agent's router is, as a URL."""

import pytest

from agentmesh.agent import ServerUrl
from agentmesh.pool.agent.config import ConfigError
from agentmesh.transports.standard import standard_transports
from agentmesh.transports.websocket import AGENT_PATH


@pytest.mark.parametrize(
    ("url", "address", "path"),
    [
        ("wss://tunnel.example.com/ws/agent/v1", "/dns/tunnel.example.com/tcp/443/wss", AGENT_PATH),
        ("wss://tunnel.example.com", "/dns/tunnel.example.com/tcp/443/wss", AGENT_PATH),
        ("wss://tunnel.example.com/", "/dns/tunnel.example.com/tcp/443/wss", AGENT_PATH),
        ("WSS://Tunnel.Example.COM:8443/agents/", "/dns/tunnel.example.com/tcp/8443/wss", "/agents/"),
        ("ws://10.0.0.1/ws", "/ip4/10.0.0.1/tcp/80/ws", "/ws"),
        ("ws://[2001:db8::1]:8080/ws/agent/v1", "/ip6/2001:db8::1/tcp/8080/ws", AGENT_PATH),
        ("wss://bücher.example/x", "/dns/bücher.example/tcp/443/wss", "/x"),
        ("tcp://r1.example:5001", "/dns/r1.example/tcp/5001", AGENT_PATH),
        ("tcp://192.0.2.1:5001/", "/ip4/192.0.2.1/tcp/5001", AGENT_PATH),
    ],
)
def test_a_url_and_its_address(url: str, address: str, path: str) -> None:
    server = ServerUrl.parse(url)
    assert (str(server.address), server.path) == (address, path)
    assert any(transport.can_dial(server.address) for transport in standard_transports())


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("", "the scheme is wss, ws or tcp"),
        ("tunnel.example.com", "the scheme is"),
        ("https://tunnel.example.com", "the scheme is"),
        ("tunnel.example.com:443", "the scheme is"),
        ("wss://", "no host"),
        ("wss:///ws", "no host"),
        ("wss://a b", "no host"),
        ("wss://user:secret@tunnel.example.com", "a name or a password"),
        ("wss://tunnel.example.com/ws?token=secret", "what follows"),
        ("wss://tunnel.example.com/ws#x", "what follows"),
        ("wss://tunnel.example.com/a b", "the path is none"),
        ("wss://tunnel.example.com/a\r\nb: c", "the path is none"),
        ("wss://tunnel.example.com:0", "no port"),
        ("wss://tunnel.example.com:70000", "[Pp]ort"),
        ("wss://tunnel.example.com:ssh", "[Pp]ort"),
        ("wss://[::1", "Invalid"),
        ("tcp://r1.example", "no port"),
        ("tcp://r1.example:5001/ws", "tcp has no path"),
    ],
)
def test_what_is_no_url_of_a_server(url: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        ServerUrl.parse(url)
    assert "such as wss://" in str(caught.value)
    assert "secret" not in str(caught.value)
