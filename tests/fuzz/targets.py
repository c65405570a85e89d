"""What a stranger's bytes reach first, as functions of those bytes. Each may raise only what blames the stranger.

Targets that take a stream take its cut points from the bytes as well, so that a fuzzer finds what only a certain cut
shows. `seeds` are bytes that mean something to a target: where a fuzzer starts, and what every test run replays.
"""

import attrs
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from agentmesh.certificates import make_certificate, peer_of_certificate
from agentmesh.credentials import ROLE_NODE, SigningKey, TrustedKeys, mint, verify
from agentmesh.errors import AddressError, CertificateError, CredentialError, RejectedError, RemoteProtocolError
from agentmesh.events import Banned, KeyRotated, PolicyUpdated, read_event, sign_event
from agentmesh.identity import Identity, public_key_of
from agentmesh.protocols.auth.machine import Answerer, Opener
from agentmesh.protocols.auth.wire import encode_frame_message
from agentmesh.protocols.directory import machine as directory
from agentmesh.protocols.directory.events import Announcement, Answer, FindPeer, FindProviders, Found, Provide, Status
from agentmesh.protocols.directory.keys import peer_key, service_key
from agentmesh.protocols.directory.wire import encode_answer, encode_request
from agentmesh.protocols.floodsub import Role
from agentmesh.protocols.floodsub.machine import Switch
from agentmesh.protocols.floodsub.signing import sign_message, verify_message
from agentmesh.protocols.floodsub.wire import decode_rpc, encode_publish
from agentmesh.protocols.http.machine import ServerExchange
from agentmesh.protocols.identify import PeerInfo
from agentmesh.protocols.identify.machine import Identification
from agentmesh.protocols.identify.wire import encode_info
from agentmesh.protocols.pool import MAX_EPOCH, Ack, AgentSide, Closing, ConnEpoch, Hello, Open, RouterSide
from agentmesh.protocols.pool.close_wire import (
    CloseRequest,
    decode_close,
    decode_closing,
    encode_close,
    encode_closing,
)
from agentmesh.protocols.pool.events import HelloReceived
from agentmesh.protocols.pool.open_wire import DIAL_ID, OPEN_ID, RELAY_ID, decode_open, encode_open
from agentmesh.protocols.pool.wire import encode_message as encode_pool_message
from agentmesh.protocols.relay import CircuitLimits
from agentmesh.protocols.relay import Status as RelayStatus
from agentmesh.protocols.relay.hop import HopDialer, HopListener
from agentmesh.protocols.relay.stop import StopDialer, StopListener
from agentmesh.protocols.relay.voucher import open_voucher, seal_voucher
from agentmesh.protocols.relay.wire import encode_hop_connect, encode_reserve, encode_stop_connect, encode_stop_status
from agentmesh.runtime.multistream import HEADER, Proposer, Responder, encode_message
from agentmesh.runtime.yamux import ChannelFinished, ChannelOpened, ChannelReadable, Mux
from agentmesh.runtime.yamux.frames import FIN, RST, SYN, FrameType, encode_header
from agentmesh.runtime.yamux.states import SENDABLE
from agentmesh.transports.proxy_connect import ConnectExchange
from agentmesh.types import Address, PeerId, ProtocolId
from agentmesh.wire.framing import FrameReader, encode_frame
from tests.fuzz.fronts import FRONTS
from tests.fuzz.target import Target, cut, pieces
from tests.protocols.floodsub.vectors import VECTORS

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
IDENTITY = Identity(KEY)
PEER = IDENTITY.peer
OTHER, ANOTHER = PeerId.from_ed25519(b"o" * 32), PeerId.from_ed25519(b"a" * 32)
SIGNER = SigningKey.from_bytes(bytes(range(32)))
TRUSTED = TrustedKeys(frozenset({SIGNER.public}))
NOW = 1_900_000_000.0


def yamux(data: bytes) -> None:
    mux = Mux(dialer=False)
    for piece in pieces(data):
        for event in mux.receive_data(piece):
            match event:
                case ChannelOpened(channel) if channel.state in SENDABLE:
                    mux.send(channel, b"welcome")
                case ChannelReadable(channel):
                    mux.read(channel, 100)
                case ChannelFinished(channel):
                    mux.close(channel, 0.0)
                case _:
                    pass
        mux.data_to_send(1 << 16)


def multistream(data: bytes) -> None:
    for side in (Responder("/echo/1.0.0".__eq__), Proposer(["/echo/1.0.0", "/echo/2.0.0"])):
        for piece in pieces(data):
            side.receive_data(piece)
            side.data_to_send()


def framing(data: bytes) -> None:
    reader = FrameReader(64)
    for piece in pieces(data):
        reader.receive_data(piece)
        while reader.next_frame() is not None:
            pass


def pool(data: bytes) -> None:
    agent, router = AgentSide(0.0), RouterSide(0.0)
    agent.send_hello(Hello("a"), 0.0)
    for piece in pieces(data):
        for side in (agent, router):
            side.receive_data(piece, 0.0)
            while (event := side.next_event()) is not None:
                if isinstance(event, HelloReceived):
                    router.send_ack(Ack("a"), 0.0)
            side.data_to_send()


def pool_open(data: bytes) -> None:
    """By one of three protocols; and what a client may say can be said to an agent, and to another router."""
    protocol = (OPEN_ID, DIAL_ID, RELAY_ID)[data[0] % 3] if data else OPEN_ID
    request = decode_open(data[1:], protocol)
    passed_on = attrs.evolve(request, stream_id=1, trace_id="t", target_connection_id="c")
    if protocol == DIAL_ID:
        assert decode_open(encode_open(passed_on), RELAY_ID) == passed_on
    assert decode_open(encode_open(request), protocol) == request


def pool_close(data: bytes) -> None:
    """A request, or its answer."""
    if data[:1] == b"a":
        closing = decode_closing(data[1:])
        assert decode_closing(encode_closing(closing)) is closing
    else:
        request = decode_close(data[1:])
        assert decode_close(encode_close(request)) == request


def auth(data: bytes) -> None:
    opener = Opener()
    opener.send_credential(b"token", 0.0)
    for machine in (Answerer(0.0), opener):
        for piece in pieces(data):
            machine.receive_data(piece, 0.0)
            machine.next_event()


def relay(data: bytes) -> None:
    hop, stop = HopDialer(), StopDialer()
    hop.send_connect(PEER, 0.0)
    stop.send_offer(PEER, CircuitLimits(), 0.0)
    for machine in (HopListener(0.0), StopListener(0.0), hop, stop):
        for piece in pieces(data):
            machine.receive_data(piece, 0.0)
            machine.next_event()
            machine.data_to_send()


def identify(data: bytes) -> None:
    machine = Identification(PEER, 0.0)
    for piece in pieces(data):
        machine.receive_data(piece, 0.0)
        machine.next_event()


def http(data: bytes) -> None:
    exchange = ServerExchange(0.0)
    for piece in pieces(data):
        exchange.receive_data(piece, 0.0)
        while exchange.next_event() is not None:
            pass


def directory_request(data: bytes) -> None:
    answerer = directory.Answerer(PEER, 0.0)
    for piece in pieces(data):
        answerer.receive_data(piece, 0.0)
        answerer.next_event()


def directory_answer(data: bytes) -> None:
    asker = directory.Asker()
    asker.send_request(FindPeer(PEER), 0.0)
    for piece in pieces(data):
        asker.receive_data(piece, 0.0)
        asker.next_event()


def floodsub(data: bytes) -> None:
    switch = Switch(PEER, Role.ROUTER)
    for topic in ("/mesh/events/v1", "a"):
        switch.subscribe(topic)
    link, other = switch.hear(OTHER, Role.LEAF), switch.tell(ANOTHER, Role.ROUTER)
    for piece in pieces(data):
        switch.receive_data(link, piece, 0.0)
        while switch.next_event() is not None:
            pass
        for ready in switch.take_ready():
            ready.outbox.take(1 << 16)
    assert not other.is_gone


def floodsub_rpc(data: bytes) -> None:
    for message in decode_rpc(data, 4096).messages:
        assert decode_rpc(encode_publish(message), 4096).messages == (message,)
        verify_message(message)


def event(data: bytes) -> None:
    read_event(data, TRUSTED)


def connect(data: bytes) -> None:
    exchange = ConnectExchange("router.example:443")
    for piece in pieces(data):
        if exchange.receive_data(piece) is not None:
            return


def certificate(data: bytes) -> None:
    peer_of_certificate(data, now=None)


def public_key(data: bytes) -> None:
    public_key_of(data)


def credential(data: bytes) -> None:
    verify(data, peer=PEER, trusted=TRUSTED, now=NOW)


def voucher(data: bytes) -> None:
    open_voucher(data, PEER, PEER)


def address(data: bytes) -> None:
    assert Address.from_bytes(data).to_bytes()


def address_text(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    assert Address.parse(text) == Address.parse(str(Address.parse(text)))


def peer_text(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    assert PeerId.parse(str(PeerId.parse(text))) == PeerId.parse(text)


STREAM_SEED = encode_header(FrameType.DATA, SYN, 1, 5) + b"hello"
ADDRESSES = ("/ip4/127.0.0.1/tcp/4001", f"/dns4/r1.example/tcp/443/wss/p2p/{PEER}/p2p-circuit/p2p/{PEER}", "/memory/7")
REMOTE = (RemoteProtocolError,)
ANNOUNCEMENT = Announcement(peer_key(PEER), tuple(Address.parse(text).with_peer(PEER) for text in ADDRESSES), 7)
INFO = PeerInfo(
    PEER,
    IDENTITY.public_key_bytes,
    tuple(map(Address.parse, ADDRESSES)),
    (ProtocolId("/ipfs/ping/1.0.0"),),
    agent_version="seed",
)

TARGETS: dict[str, Target] = {
    "yamux": Target(
        yamux,
        REMOTE,
        (
            cut(STREAM_SEED, encode_header(FrameType.WINDOW_UPDATE, FIN, 1, 9)),
            cut(STREAM_SEED, encode_header(FrameType.WINDOW_UPDATE, RST, 1, 0x1008)),
            cut(encode_header(FrameType.PING, SYN, 0, 7), encode_header(FrameType.GO_AWAY, 0, 0, 0)),
        ),
    ),
    "multistream": Target(
        multistream,
        (*REMOTE, RejectedError),
        (cut(encode_message(HEADER), encode_message("/echo/1.0.0")), cut(encode_message(HEADER), encode_message("na"))),
    ),
    "framing": Target(framing, REMOTE, (cut(encode_frame(b"hello"), encode_frame(b"")),)),
    "auth": Target(auth, REMOTE, (cut(encode_frame(encode_frame_message(b"token"))),)),
    "relay": Target(
        relay,
        REMOTE,
        (
            cut(encode_frame(encode_reserve())),
            cut(encode_frame(encode_hop_connect(PEER))),
            cut(encode_frame(encode_stop_connect(PEER, CircuitLimits(max_bytes=9)))),
            cut(encode_frame(encode_stop_status(RelayStatus.OK)), b"bytes behind"),
        ),
    ),
    "pool": Target(
        pool,
        REMOTE,
        (cut(encode_frame(encode_pool_message(Ack("a", ConnEpoch(7))))), cut(encode_frame(b'{"type":"trace"}'))),
    ),
    "pool_open": Target(
        pool_open,
        REMOTE,
        (
            b"\x00" + encode_open(Open("a", "tcp", "::1", 22, 1)),
            b"\x01" + encode_open(Open("a", "http", "h", 443, metadata={"a": "\u00e9"})),
            b"\x02" + encode_open(Open("a", "tcp", "h", 22, 0, "", "", "", "", "c", ConnEpoch(MAX_EPOCH))),
        ),
    ),
    "pool_close": Target(
        pool_close,
        REMOTE,
        (
            b"q" + encode_close(CloseRequest("a", "c", ConnEpoch(MAX_EPOCH))),
            *(b"a" + encode_closing(closing) for closing in Closing),
        ),
    ),
    **FRONTS,
    "identify": Target(identify, REMOTE, (cut(encode_frame(encode_info(INFO))),)),
    "http": Target(http, REMOTE, (cut(b"POST /http/x/ HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi"),)),
    "directory_request": Target(
        directory_request,
        REMOTE,
        (
            cut(encode_frame(encode_request(Provide(ANNOUNCEMENT)))),
            cut(encode_frame(encode_request(Provide(ANNOUNCEMENT, PEER)))),
            cut(encode_frame(encode_request(FindProviders(service_key("mcp"), 5)))),
            cut(encode_frame(encode_request(FindPeer(PEER)))),
        ),
    ),
    "directory_answer": Target(
        directory_answer,
        REMOTE,
        (
            cut(encode_frame(encode_answer(Answer(found=(Found(PEER, ANNOUNCEMENT.addresses, 7, 60.0),))))),
            cut(encode_frame(encode_answer(Answer(Status.LIMITED, sequence=7, retry_after=1.5, placed=3)))),
        ),
    ),
    "floodsub": Target(floodsub, REMOTE, tuple(cut(encode_frame(vector.data)) for vector in VECTORS)),
    "floodsub_rpc": Target(
        floodsub_rpc,
        REMOTE,
        (
            *(vector.data for vector in VECTORS),
            encode_publish(sign_message(IDENTITY, "/mesh/events/v1", b"hello", 2**60)),
        ),
    ),
    "event": Target(
        event,
        REMOTE,
        tuple(sign_event(SIGNER, one) for one in (Banned(PEER, NOW), KeyRotated(bytes(32), NOW), PolicyUpdated(NOW))),
    ),
    "connect": Target(
        connect,
        REMOTE,
        (
            cut(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 200 OK\r\nVia: x\r\n\r\nbytes behind"),
            cut(b"HTTP/1.1 407 No\r\nContent-Length: 2\r\n\r\nno"),
        ),
    ),
    "certificate": Target(certificate, (CertificateError,), (make_certificate(IDENTITY)[0],)),
    "public_key": Target(public_key, (*REMOTE, AddressError), (IDENTITY.public_key_bytes,)),
    "credential": Target(
        credential,
        (CredentialError,),
        (mint(SIGNER, peer=PEER, role=ROLE_NODE, labels={"a": "b"}, expires_at=NOW + 60),),
    ),
    "voucher": Target(voucher, (*REMOTE, AddressError), (seal_voucher(IDENTITY, PEER, NOW),)),
    "address": Target(address, (AddressError,), tuple(Address.parse(text).to_bytes() for text in ADDRESSES)),
    "address_text": Target(address_text, (AddressError,), tuple(text.encode() for text in ADDRESSES)),
    "peer_text": Target(peer_text, (AddressError,), (str(PEER).encode(), PEER.dns_label.encode())),
}
