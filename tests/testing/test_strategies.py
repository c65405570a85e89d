import subprocess
import sys

from hypothesis import given, settings
from hypothesis import strategies as st

from agentmesh.errors import RemoteProtocolError
from agentmesh.protocols.identify.wire import decode_info
from agentmesh.protocols.relay.wire import decode_hop, decode_stop
from agentmesh.testing import strategies
from agentmesh.transports.h2 import H2Transport
from agentmesh.transports.memory import MemoryTransport
from agentmesh.transports.tcp import TcpTransport
from agentmesh.transports.websocket import WebSocketTransport
from agentmesh.types import Address, PeerId
from agentmesh.wire.codec import decode
from agentmesh.wire.messages.libp2p.identify import Identify
from agentmesh.wire.messages.libp2p.relay import HopMessage, StopMessage
from agentmesh.wire.messages.mesh.v1 import AuthFrame, AuthResponse

TRANSPORTS = (MemoryTransport(), TcpTransport(), WebSocketTransport(), H2Transport())


@given(strategies.peer_ids() | strategies.foreign_peer_ids())
def test_peer_ids_read_back(peer: PeerId) -> None:
    assert PeerId.parse(str(peer)) == peer


@given(strategies.addresses())
def test_addresses_read_back_and_can_be_dialled(address: Address) -> None:
    assert Address.parse(str(address)) == address
    assert Address.from_bytes(address.to_bytes()) == address
    if address.circuit is None:
        assert any(transport.can_dial(address) for transport in TRANSPORTS)


@given(st.data(), st.binary(max_size=100))
def test_chunks_are_the_whole(data: st.DataObject, whole: bytes) -> None:
    pieces = data.draw(strategies.chunks(whole))
    assert b"".join(pieces) == whole
    assert all(pieces)


@given(strategies.chunkings(7))
def test_chunkings_make_progress(sizes: list[int]) -> None:
    assert sizes
    assert all(1 <= size <= 7 for size in sizes)


@given(
    strategies.auth_frames(),
    strategies.auth_responses(),
    strategies.hop_messages(),
    strategies.stop_messages(),
    strategies.identify_messages(),
)
def test_messages_are_well_formed(
    frame: AuthFrame, response: AuthResponse, hop: HopMessage, stop: StopMessage, identify: Identify
) -> None:
    for message in (frame, response, hop, stop, identify):
        assert decode(type(message), bytes(message)) == message


@given(strategies.auth_frames(st.just(b"token")), strategies.auth_responses(st.just(b"token")))
def test_credentials_may_be_given(frame: AuthFrame, response: AuthResponse) -> None:
    assert frame.biscuit == response.biscuit == b"token"


@settings(max_examples=300)
@given(strategies.damaged(st.one_of(strategies.hop_messages(), strategies.stop_messages()).map(bytes)))
def test_damage_is_a_protocol_error_or_none(data: bytes) -> None:
    for decoder in (decode_hop, decode_stop, decode_info):
        try:
            decoder(data)
        except RemoteProtocolError:
            continue


def test_damage_damages() -> None:
    whole = b"0123456789"
    seen: set[bytes] = set()

    @settings(max_examples=200, database=None)
    @given(strategies.damaged(st.just(whole)))
    def collect(data: bytes) -> None:
        seen.add(data)

    collect()
    assert any(len(data) < 10 for data in seen)
    assert any(len(data) == 10 and data != whole for data in seen)
    assert any(len(data) > 10 for data in seen)


def test_the_rest_of_the_kit_needs_no_hypothesis() -> None:
    program = "import sys; sys.modules['hypothesis'] = None; import agentmesh.testing"
    subprocess.run([sys.executable, "-c", program], check=True)
