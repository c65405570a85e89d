"""The proxies of `agentmesh forward`: nothing that a client says raises anything."""

from collections.abc import Callable

from agentmesh.forward.credentials import Credentials
from agentmesh.forward.front import Front, TargetRequested
from agentmesh.forward.http_connect import ConnectServer
from agentmesh.forward.socks import SocksServer
from tests.fuzz.target import Target, cut, pieces


def front(make: Callable[[Credentials | None], Front]) -> Callable[[bytes], None]:
    """A proxy without a password and one with, each of which accepts what it is asked for."""

    def run(data: bytes) -> None:
        for credentials in (None, Credentials(b"me", b"secret")):
            machine = make(credentials)
            for piece in pieces(data):
                machine.receive_data(piece)
                if isinstance(machine.next_event(), TargetRequested):
                    machine.send_accepted()
                machine.data_to_send()
            machine.receive_data(b"")

    return run


FRONTS: dict[str, Target] = {
    "socks": Target(
        front(SocksServer),
        (),
        (
            cut(b"\x05\x01\x00", b"\x05\x01\x00\x03\x01h\x00\x50", b"behind"),
            cut(b"\x05\x01\x02", b"\x01\x02me\x06secret", b"\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50"),
        ),
    ),
    "http_connect": Target(
        front(ConnectServer),
        (),
        (
            cut(b"CONNECT h:80 HTTP/1.1\r\nHost: h:80\r\n\r\nbehind"),
            cut(b"CONNECT [::1]:80 HTTP/1.1\r\nHost: h\r\nProxy-Authorization: Basic bWU6c2VjcmV0\r\n\r\n"),
        ),
    ),
}
