"""Which circuits of a member may have connections of their own, and where those go."""

import pytest

from agentmesh.abc import Direction, Session, Stream
from agentmesh.protocols.relay.data_paths import DataPaths
from agentmesh.transports.proxy import DIRECT
from agentmesh.transports.tcp import TcpTransport
from agentmesh.types import Address, PeerId, ProtocolId

RELAY = PeerId.from_ed25519(b"r" * 32)
HERE = Address.parse("/ip4/192.0.2.1/tcp/4001")


class Standing(Session):
    """A session that only says where it leads."""

    def __init__(self, address: Address | None, direction: Direction = Direction.OUTBOUND) -> None:
        self.peer, self.address, self.direction = RELAY, address, direction

    async def open_stream(self, protocol: ProtocolId) -> Stream:
        raise NotImplementedError


def addresses_of(*named: str, dialled: Address = HERE) -> list[str]:
    paths = DataPaths(TcpTransport(proxies=DIRECT))
    return [str(address) for address in paths.addresses(Standing(dialled), tuple(map(Address.parse, named)))]


@pytest.mark.parametrize(
    ("session", "may"),
    [
        (Standing(HERE), True),
        (Standing(HERE.with_peer(RELAY)), True),
        (Standing(Address.parse("/dns4/router.example/tcp/443")), True),
        (Standing(HERE, Direction.INBOUND), False),
        (Standing(None), False),
        (Standing(Address.parse("/ip4/192.0.2.1/tcp/443/ws")), False),
        (Standing(Address.parse("/ip4/192.0.2.1/tcp/443/tls")), False),
        (Standing(Address.parse("/ip4/192.0.2.1/tcp/443/tls/http")), False),
        (Standing(Address.parse("/memory/1")), False),
    ],
)
async def test_sessions_that_were_dialled_over_plain_tcp_may(session: Session, may: bool) -> None:
    assert DataPaths(TcpTransport(proxies=DIRECT)).may_have(session) is may
    assert not DataPaths(None).may_have(session)


def test_where_the_session_goes_comes_first() -> None:
    assert addresses_of() == [str(HERE)]
    assert addresses_of(dialled=HERE.with_peer(RELAY)) == [str(HERE)]


def test_what_the_relay_names_on_the_same_host_comes_after_it_and_nothing_else() -> None:
    named = (
        "/ip4/192.0.2.1/tcp/4002",
        "/ip4/192.0.2.1/tcp/4001",
        "/ip4/127.0.0.1/tcp/6379",  # of the member's own machine
        "/ip4/10.0.0.1/tcp/4001",
        "/dns4/router.example/tcp/4001",
        "/ip4/192.0.2.1/tcp/443/ws",
        "/ip4/192.0.2.1/udp/4001",
    )
    assert addresses_of(*named) == [str(HERE), "/ip4/192.0.2.1/tcp/4002"]
