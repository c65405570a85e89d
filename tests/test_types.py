"""One peer, one PeerId; one place, one Address; however they were spelt."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.errors import AddressError
from agentmesh.types import (
    CID_PREFIX,
    MAX_ADDRESS_BYTES,
    MAX_ADDRESS_CHARS,
    MAX_PEER_ID_CHARS,
    MULTIBASE,
    Address,
    PeerId,
)

# Of the test vectors of the libp2p specifications "tls" and "peer-ids": one peer ID of each kind of key.
ED25519 = "12D3KooWM6CgA9iBFZmcYAHA6A2qvbAxqfkmrYiRQuz3XEsk4Ksv"
ED25519_KEY = bytes.fromhex("a77f1d92fedb59dddaea5a1c4abd1ac2fbde7d7b879ed364501809923d7c11b9")
ECDSA = "QmfXbAwNjJLXfesgztEHe8HwgVDCMMpZ9Eax1HYq6hn9uE"
SECP256K1 = "16Uiu2HAkutTMoTzDw1tCvSRtu6YoixJwS46S1ZFxW8hSx9fWHiPs"
PEER = PeerId.parse(ED25519)

CID_SPELLINGS = ["base2", "base16", "base32", "base32upper", "base36", "base36upper", "base58btc", "base64url"]

peers = st.binary(min_size=32, max_size=32).map(PeerId.from_ed25519)
hosts = st.one_of(
    st.ip_addresses(v=4).map(lambda ip: f"/ip4/{ip}"),
    st.ip_addresses(v=6).map(lambda ip: f"/ip6/{ip}"),
    st.sampled_from(["/dns4/r1.example", "/dns6/r1.example", "/dns/R1.example"]),
)
ports = st.integers(0, 65535)
places = st.one_of(
    st.builds(
        "{}/tcp/{}{}".format,
        hosts,
        ports,
        st.sampled_from(["", "/ws", "/wss", "/tls/ws", "/tls", "/tls/sni/r2.example"]),
    ),
    st.builds("{}/udp/{}/quic-v1".format, hosts, ports),
    st.integers(0, 2**64 - 1).map("/memory/{}".format),
    st.just("/dnsaddr/mesh.example"),
)
texts = st.one_of(
    places,
    st.builds("{}/p2p/{}".format, places, peers),
    st.builds("{}/p2p/{}/p2p-circuit/p2p/{}".format, places, peers, peers),
)


def spelt(peer: PeerId, base: str) -> str:
    cid: bytes = MULTIBASE.encode(base, CID_PREFIX + peer.multihash)
    return cid.decode()


class TestPeerId:
    @pytest.mark.parametrize("text", [ED25519, ECDSA, SECP256K1])
    def test_every_kind_of_key_has_a_peer_id(self, text: str) -> None:
        peer = PeerId.parse(text)
        assert str(peer) == text
        assert repr(peer) == f"PeerId({text})"
        assert PeerId.from_bytes(peer.multihash) == peer

    def test_golden_spellings(self) -> None:
        assert PEER.multihash.hex() == f"002408011220{ED25519_KEY.hex()}"
        assert spelt(PEER, "base32") == "bafzaajaiaejcbj37dwjp5w2z3xnouwq4jk6rvqx33z6xxb462nsfagajsi6xyenz"
        assert PEER.dns_label == "k51qzi5uqu5dkcvl8ex8ld8yc53yojhh0cchrvfm7uq5mpi0d32uhisklc9ku1"

    @given(peers, st.sampled_from(CID_SPELLINGS))
    def test_every_spelling_of_one_peer_is_that_peer(self, peer: PeerId, base: str) -> None:
        alias = PeerId.parse(spelt(peer, base))
        assert alias == peer == PeerId.parse(str(peer))
        assert {alias: "banned"}[peer] == "banned"
        assert str(alias) == str(peer)

    @given(peers)
    def test_its_dns_label_fits_a_host_name(self, peer: PeerId) -> None:
        assert len(peer.dns_label) <= 63
        assert peer.dns_label == peer.dns_label.lower()
        assert PeerId.parse(peer.dns_label) == peer

    @given(st.binary(min_size=32, max_size=32))
    def test_an_ed25519_id_holds_the_key(self, key: bytes) -> None:
        assert PeerId.from_ed25519(key).ed25519 == key

    @pytest.mark.parametrize("text", [ECDSA, SECP256K1])
    def test_another_id_holds_no_ed25519_key(self, text: str) -> None:
        assert PeerId.parse(text).ed25519 is None

    @pytest.mark.parametrize("length", [0, 31, 33])
    def test_an_ed25519_key_has_32_bytes(self, length: int) -> None:
        with pytest.raises(AddressError):
            PeerId.from_ed25519(bytes(length))

    def test_ids_have_an_order(self) -> None:
        assert PeerId.from_ed25519(bytes(32)) < PeerId.from_ed25519(b"\x01" * 32)

    @given(st.text(max_size=80))
    def test_any_text_is_a_peer_id_or_an_address_error(self, text: str) -> None:
        try:
            peer = PeerId.parse(text)
        except AddressError:
            return
        assert PeerId.parse(str(peer)) == peer

    @given(st.binary(max_size=50) | st.binary(max_size=50).map(lambda rest: PEER.multihash[:6] + rest))
    def test_any_bytes_are_a_peer_id_or_an_address_error(self, data: bytes) -> None:
        try:
            peer = PeerId.from_bytes(data)
        except AddressError:
            return
        assert PeerId.parse(str(peer)) == peer

    @pytest.mark.parametrize(
        "multihash",
        [
            "",
            "00",
            "0024",
            "0024" + "1220" + ED25519_KEY.hex() + "0801",  # the key's message in another order: the same key
            "00a400" + "08011220" + ED25519_KEY.hex(),  # the length spelt longer
            "0026" + "08011220" + ED25519_KEY.hex() + "1800",  # a field more
            "0023" + "08011220" + ED25519_KEY.hex()[:62],
            "1220" + ED25519_KEY.hex()[:62],
            "1320" + ED25519_KEY.hex(),  # not sha2-256
            "1140" + 2 * ED25519_KEY.hex(),
        ],
    )
    def test_no_peer_has_a_second_multihash(self, multihash: str) -> None:
        data = bytes.fromhex(multihash)
        with pytest.raises(AddressError):
            PeerId.from_bytes(data)
        with pytest.raises(AddressError):
            PeerId.parse(MULTIBASE.encode("base32", CID_PREFIX + data).decode())

    def test_a_cid_of_something_else_is_no_peer_id(self) -> None:
        with pytest.raises(AddressError):
            PeerId.parse(MULTIBASE.encode("base32", b"\x01\x70" + PEER.multihash).decode())

    @pytest.mark.parametrize("head", ["1", "Qm", "f0172", "01"])
    def test_a_long_text_is_refused_unread(self, head: str) -> None:
        with pytest.raises(AddressError) as caught:
            PeerId.parse(head + "1" * MAX_PEER_ID_CHARS)
        assert len(str(caught.value)) < 200


class TestAddress:
    @given(texts)
    def test_round_trips(self, text: str) -> None:
        address = Address.parse(text)
        assert Address.parse(str(address)) == address
        assert Address.from_bytes(address.to_bytes()) == address

    def test_golden_bytes(self) -> None:
        address = Address.parse(f"/ip4/127.0.0.1/tcp/4001/p2p/{ED25519}")
        assert address.to_bytes().hex() == f"047f000001060fa1a50326{PEER.multihash.hex()}"
        assert Address.parse("/dns4/r1.example/tcp/443/wss").to_bytes().hex() == (
            "360a" + b"r1.example".hex() + "0601bb" + "de03"
        )

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("/ip6/0:0::1/tcp/04001/", "/ip6/::1/tcp/4001"),
            ("/ip6/::FFFF:1.2.3.4/tcp/1", "/ip6/::ffff:1.2.3.4/tcp/1"),
            ("/memory/007", "/memory/7"),
            ("/dns4/R1.Example/tcp/443/wss", "/dns4/r1.example/tcp/443/wss"),
            (f"/memory/1/p2p/{spelt(PEER, 'base32')}", f"/memory/1/p2p/{ED25519}"),
            (f"/memory/1/p2p/{PEER.dns_label}/p2p-circuit", f"/memory/1/p2p/{ED25519}/p2p-circuit"),
        ],
    )
    def test_every_spelling_of_one_place_is_that_address(self, one: str, other: str) -> None:
        assert Address.parse(one) == Address.parse(other)
        assert str(Address.parse(one)) == other
        assert hash(Address.parse(one)) == hash(Address.parse(other))

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "/",
            "127.0.0.1:4001",
            "/ip4/127.0.0.1/tcp",
            "/ip4/127.0.0.1/tcp/65536",
            "/ip4/127.0.0.256/tcp/1",
            "/nonsense/1",
            "/p2p/nobody",
            "/memory/x",
            "/unix/run/mesh.sock",
            f"/unix/run/p2p/{ED25519}",
            f"/p2p-circuit/p2p/{ED25519}/p2p/",
            f"/nonsense/1/p2p/{ED25519}",
            "/p2p/x" * 300,
            f"/p2p/{ED25519}" * 60,
            f"/ip4/127.0.0.1/tcp/1/p2p/{ED25519[:-1]}",
            "/dns4/" + "a" * MAX_ADDRESS_CHARS,
        ],
    )
    def test_what_is_no_address_is_refused(self, text: str) -> None:
        with pytest.raises(AddressError) as caught:
            Address.parse(text)
        assert len(str(caught.value)) < 300

    @given(st.text(max_size=80) | texts.map(lambda text: text[:-3]) | st.text(max_size=20).map("/dns4/{}".format))
    def test_any_text_is_an_address_or_an_address_error(self, text: str) -> None:
        try:
            address = Address.parse(text)
        except AddressError:
            return
        assert Address.parse(str(address)) == address

    @given(st.binary(max_size=80), texts, st.integers(0, 80))
    def test_any_bytes_are_an_address_or_an_address_error(self, noise: bytes, text: str, at: int) -> None:
        data = Address.parse(text).to_bytes()
        for candidate in (noise, data[:at] + noise[:2] + data[at:], data[:at]):
            try:
                address = Address.from_bytes(candidate)
            except AddressError:
                continue
            assert Address.parse(str(address)) == address

    def test_long_bytes_are_refused_unread(self) -> None:
        with pytest.raises(AddressError, match="more than"):
            Address.from_bytes(bytes(MAX_ADDRESS_BYTES + 1))

    def test_its_parts(self) -> None:
        address = Address.parse(f"/dns4/r1.example/tcp/443/wss/p2p/{ED25519}")
        assert address.names == ("dns4", "tcp", "wss", "p2p")
        assert address.value("tcp") == "443"
        assert address.value("wss") is None
        assert address.value("udp") is None
        assert address.peer == PEER
        assert repr(address) == f"Address('/dns4/r1.example/tcp/443/wss/p2p/{ED25519}')"

    @given(places, peers, peers)
    def test_its_peer_can_be_put_on_and_taken_off(self, place: str, peer: PeerId, other: PeerId) -> None:
        bare = Address.parse(place)
        named = bare.with_peer(peer)
        assert bare.peer is None
        assert named.peer == peer
        assert named == Address.parse(f"{bare}/p2p/{peer}")
        assert named.with_peer(other) == bare.with_peer(other)
        assert named.without_peer() == bare.without_peer() == bare

    def test_more_parts_behind_it(self) -> None:
        relay = Address.parse("/memory/1").with_peer(PEER)
        assert relay / "p2p-circuit" == Address.parse(f"/memory/1/p2p/{ED25519}/p2p-circuit")
        with pytest.raises(AddressError):
            _ = relay / "nonsense"

    @given(places, peers, peers)
    def test_a_circuit_has_a_relay_and_perhaps_a_peer_behind_it(self, place: str, relay: PeerId, peer: PeerId) -> None:
        at_relay = Address.parse(place).with_peer(relay)
        assert (at_relay / "p2p-circuit").circuit == (at_relay, None)
        assert (at_relay / f"p2p-circuit/p2p/{peer}").circuit == (at_relay, peer)
        assert (at_relay / "p2p-circuit").with_peer(peer).circuit == (at_relay, peer)
        assert at_relay.circuit is None

    @pytest.mark.parametrize(
        ("text", "name"),
        [
            ("/dns4/r1.example/tcp/443/tls", "r1.example"),
            ("/dns/bücher.example/tcp/443/tls", "xn--bcher-kva.example"),
            ("/ip4/1.2.3.4/tcp/443/tls/sni/r1.example", "r1.example"),
            ("/dns4/lb.example/tcp/443/tls/sni/אב1.example", "xn--1-zhcd.example"),
            ("/ip6/::1/tcp/443/tls", ""),
            ("/dns4/r1.example/tcp/443", None),
            ("/dns4/r1.example/tcp/443/tls/ws", None),
            ("/dns4/r1.example/tcp/443/tls/sni/r1.example/http", None),
            (f"/dns4/r1.example/tcp/443/tls/p2p/{ED25519}/p2p-circuit", None),
        ],
    )
    def test_the_name_that_tls_begins_with(self, text: str, name: str | None) -> None:
        assert Address.parse(text).tls_name == Address.parse(text).with_peer(PEER).tls_name == name

    def test_a_circuit_through_a_circuit_is_cut_at_the_last(self) -> None:
        first = Address.parse(f"/memory/1/p2p/{ED25519}/p2p-circuit/p2p/{ECDSA}")
        assert (first / f"p2p-circuit/p2p/{SECP256K1}").circuit == (first, PeerId.parse(SECP256K1))
