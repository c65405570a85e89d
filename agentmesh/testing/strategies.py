"""Hypothesis strategies for what goes over the wire. Needs Hypothesis: `pip install agentmesh[testing]`.

@given(strategies.hop_messages(), strategies.chunkings())
def test_a_relay_reads_it_however_it_is_cut(message: HopMessage, sizes: list[int]) -> None: ...
"""

import datetime
import itertools

from hypothesis import strategies as st

from agentmesh.types import Address, PeerId
from agentmesh.wire.messages.libp2p.identify import Identify
from agentmesh.wire.messages.libp2p.pubsub import Message, Rpc, RpcSubOpts
from agentmesh.wire.messages.libp2p.relay import (
    HopMessage,
    HopMessageType,
    Limit,
    Peer,
    Reservation,
    Status,
    StopMessage,
    StopMessageType,
)
from agentmesh.wire.messages.mesh.v1 import (
    AuthFrame,
    AuthResponse,
    DialBackRequest,
    DirectoryProvider,
    DirectoryRecord,
    DirectoryRequest,
    DirectoryResponse,
    DirectoryStatus,
    FindPeer,
    FindProviders,
    RouterGoAway,
    RouterGoAwayReason,
)

Bytes = st.SearchStrategy[bytes]

SHA2_256 = b"\x12\x20"  # multihash: its code, and 32 bytes; the peer IDs of RSA keys
TOKENS = st.binary(max_size=200)
LABELS = st.from_regex(r"[a-z]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)


def peer_ids() -> st.SearchStrategy[PeerId]:
    """Peer IDs of Ed25519 keys; nobody has the private ones."""
    return st.binary(min_size=32, max_size=32).map(PeerId.from_ed25519)


def foreign_peer_ids() -> st.SearchStrategy[PeerId]:
    """Peer IDs of keys that only other implementations have: hashes."""
    return st.binary(min_size=32, max_size=32).map(lambda digest: PeerId(SHA2_256 + digest))


def host_parts() -> st.SearchStrategy[str]:
    """The beginning of an address: /ip4/…, /ip6/…, /dns/…, /dns4/… or /dns6/…."""
    names = st.lists(LABELS, min_size=1, max_size=3).map(".".join)
    return st.one_of(
        st.ip_addresses(v=4).map("/ip4/{}".format),
        st.ip_addresses(v=6).map("/ip6/{}".format),
        st.builds("/{}/{}".format, st.sampled_from(["dns", "dns4", "dns6"]), names),
    )


def addresses() -> st.SearchStrategy[Address]:
    """Addresses that some transport here can dial, with and without the peer at their end."""
    suffixes = st.sampled_from(["", "/ws", "/wss", "/tls/ws", "/http", "/https", "/tls/http"])
    sockets = st.builds("{}/tcp/{}{}".format, host_parts(), st.integers(1, 65535), suffixes)
    direct = st.one_of(sockets, st.integers(1, 2**32).map("/memory/{}".format))
    whole = st.builds("{}/p2p/{}".format, direct, peer_ids())
    circuits = st.builds("{}/p2p-circuit/p2p/{}".format, whole, peer_ids())
    return st.one_of(direct, whole, circuits).map(Address.parse)


def chunkings(max_bytes: int = 100) -> st.SearchStrategy[list[int]]:
    """How a wire may cut what goes over it: sizes of at least 1, to be used over and over (`Pair.run`).

    Args:
        max_bytes: the largest size.
    """
    return st.lists(st.integers(1, max_bytes), min_size=1, max_size=10)


def chunks(data: bytes) -> st.SearchStrategy[list[bytes]]:
    """The ways to cut `data` into pieces that are not empty."""

    def cut(places: set[int]) -> list[bytes]:
        bounds = [0, *sorted(places), len(data)]
        return [data[start:end] for start, end in itertools.pairwise(bounds) if start < end]

    if len(data) < 2:
        return st.just([data] if data else [])
    return st.sets(st.integers(1, len(data) - 1), max_size=50).map(cut)


def damaged(whole: Bytes) -> Bytes:
    """Messages with something wrong: a part cut out, changed, or put in, be it of another message.

    What comes out may still be a good message: a decoder that takes it has to raise the one error or give a value.

    Args:
        whole: encoded messages.
    """

    def splice(data: bytes, place: int, dropped: int, put_in: bytes) -> bytes:
        at = place % (len(data) + 1)
        return data[:at] + put_in + data[at + dropped :]

    dropped = st.integers(0, 3) | st.just(2**16)
    return st.builds(splice, whole, st.integers(0, 2**16), dropped, st.binary(max_size=8) | whole)


# ── messages: well-formed, with any of their optional fields left out ──


def goaways() -> st.SearchStrategy[RouterGoAway]:
    """What a router tells a member that it sends away."""
    durations = st.timedeltas(datetime.timedelta(seconds=-10), datetime.timedelta(days=400))
    return st.builds(RouterGoAway, reason=st.sampled_from(RouterGoAwayReason), retry_after=st.none() | durations)


def dialbacks() -> st.SearchStrategy[DialBackRequest]:
    """Where a member listens; a router answers in the same form."""
    return st.builds(DialBackRequest, addresses=st.lists(addresses().map(str), max_size=10))


def auth_frames(tokens: Bytes = TOKENS) -> st.SearchStrategy[AuthFrame]:
    """The opener's first message of the auth handshake.

    Args:
        tokens: credentials; opaque bytes by default.
    """
    return st.builds(AuthFrame, biscuit=tokens, target_service=st.text(max_size=40))


def auth_responses(tokens: Bytes = TOKENS) -> st.SearchStrategy[AuthResponse]:
    """The answer to it.

    Args:
        tokens: credentials; opaque bytes by default.
    """
    return st.builds(AuthResponse, success=st.booleans(), error=st.text(max_size=40), biscuit=tokens)


def hop_messages() -> st.SearchStrategy[HopMessage]:
    """Between a peer and a relay (circuit relay v2, hop)."""
    return st.builds(
        HopMessage,
        type=st.none() | st.sampled_from(HopMessageType),
        peer=st.none() | relay_peers(),
        reservation=st.none() | reservations(),
        limit=st.none() | limits(),
        status=st.none() | st.sampled_from(Status),
    )


def stop_messages() -> st.SearchStrategy[StopMessage]:
    """Between a relay and the peer that a circuit leads to (circuit relay v2, stop)."""
    return st.builds(
        StopMessage,
        type=st.none() | st.sampled_from(StopMessageType),
        peer=st.none() | relay_peers(),
        limit=st.none() | limits(),
        status=st.none() | st.sampled_from(Status),
    )


def relay_peers() -> st.SearchStrategy[Peer]:
    """Whom a circuit is to, or from."""
    ids = st.one_of(peer_ids(), foreign_peer_ids()).map(lambda peer: peer.multihash)
    return st.builds(Peer, id=st.none() | ids, addrs=st.lists(binary_addresses(), max_size=3))


def reservations() -> st.SearchStrategy[Reservation]:
    """What a relay grants; the voucher is opaque."""
    return st.builds(
        Reservation,
        expire=st.none() | st.integers(0, 2**64 - 1),
        addrs=st.lists(binary_addresses(), max_size=3),
        voucher=st.none() | st.binary(max_size=100),
    )


def limits() -> st.SearchStrategy[Limit]:
    """What a circuit may carry."""
    return st.builds(Limit, duration=st.none() | st.integers(0, 2**32 - 1), data=st.none() | st.integers(0, 2**64 - 1))


def identify_messages() -> st.SearchStrategy[Identify]:
    """What a peer says of itself; the key is of the right form and the signed record opaque."""
    keys = st.binary(min_size=32, max_size=32).map(lambda key: PeerId.from_ed25519(key).multihash[2:])
    names = st.text(st.characters(codec="ascii", min_codepoint=33), min_size=1, max_size=30).map("/{}".format)
    return st.builds(
        Identify,
        public_key=st.none() | keys,
        listen_addrs=st.lists(binary_addresses(), max_size=4),
        protocols=st.lists(names, max_size=5),
        observed_addr=st.none() | binary_addresses(),
        protocol_version=st.none() | st.text(max_size=20),
        agent_version=st.none() | st.text(max_size=20),
        signed_peer_record=st.none() | st.binary(max_size=100),
    )


def directory_requests() -> st.SearchStrategy[DirectoryRequest]:
    """What a member asks its router, or a router another."""
    texts = peer_ids().map(str)
    return st.builds(
        DirectoryRequest,
        provide=st.none()
        | st.builds(
            DirectoryRecord,
            key=directory_keys(),
            addresses=st.lists(addresses().map(str), max_size=3),
            sequence=st.integers(0, 2**64 - 1),
            ttl=st.none() | durations(),
        ),
        find_providers=st.none() | st.builds(FindProviders, key=directory_keys(), limit=st.integers(0, 2**32 - 1)),
        find_peer=st.none() | st.builds(FindPeer, peer_id=texts),
        provider=st.just("") | texts,
    )


def directory_responses() -> st.SearchStrategy[DirectoryResponse]:
    """What it answers."""
    providers = st.builds(
        DirectoryProvider,
        peer_id=peer_ids().map(str),
        addresses=st.lists(addresses().map(str), max_size=3),
        sequence=st.integers(0, 2**64 - 1),
        ttl=st.none() | durations(),
    )
    return st.builds(
        DirectoryResponse,
        status=st.sampled_from(DirectoryStatus),
        providers=st.lists(providers, max_size=4),
        sequence=st.integers(0, 2**64 - 1),
        retry_after=st.none() | durations(),
        placed=st.integers(0, 2**32 - 1),
    )


def directory_keys() -> Bytes:
    """sha2-256 multihashes, of nothing in particular."""
    return st.binary(min_size=32, max_size=32).map(SHA2_256.__add__)


def durations() -> st.SearchStrategy[datetime.timedelta]:
    """Negative ones too, as the wire can say them."""
    return st.timedeltas(datetime.timedelta(days=-1), datetime.timedelta(days=30))


def pubsub_rpcs() -> st.SearchStrategy[Rpc]:
    """Subscriptions and messages; nobody has signed these."""
    topics = st.text(max_size=20)
    options = st.builds(RpcSubOpts, subscribe=st.none() | st.booleans(), topicid=st.none() | topics)
    messages = st.builds(
        Message,
        from_=st.none() | st.one_of(peer_ids(), foreign_peer_ids()).map(lambda peer: peer.multihash),
        data=st.none() | st.binary(max_size=100),
        seqno=st.none() | st.binary(min_size=8, max_size=8),
        topics=st.lists(topics, max_size=3),
        signature=st.none() | st.binary(max_size=64),
        key=st.none() | st.binary(max_size=36),
    )
    return st.builds(Rpc, subscriptions=st.lists(options, max_size=4), publish=st.lists(messages, max_size=3))


def binary_addresses() -> Bytes:
    """Addresses as messages hold them."""
    return addresses().map(Address.to_bytes)
