import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.errors import RemoteProtocolError
from agentmesh.identity import Identity, encode_public_key, peer_of
from agentmesh.protocols.identify.events import PeerInfo
from agentmesh.protocols.identify.wire import (
    MAX_ADDRESSES,
    MAX_MESSAGE_BYTES,
    MAX_PROTOCOL_CHARS,
    MAX_PROTOCOLS,
    MAX_VERSION_CHARS,
    decode_info,
    encode_info,
)
from agentmesh.testing.strategies import addresses, damaged, identify_messages
from agentmesh.types import Address, ProtocolId
from agentmesh.wire.messages.libp2p.identify import Identify

ME = Identity.generate()
bare_addresses = addresses().map(lambda address: address.without_peer()).filter(lambda address: bool(address.parts))
infos = st.builds(
    PeerInfo,
    st.just(ME.peer),
    st.just(ME.public_key_bytes),
    st.lists(bare_addresses, max_size=5).map(tuple),
    st.lists(st.text(max_size=20).map(ProtocolId), max_size=5).map(tuple),
    st.none() | bare_addresses,
    st.text(max_size=20),
    st.text(max_size=20),
)


@given(infos)
def test_what_a_peer_says_comes_back(info: PeerInfo) -> None:
    assert decode_info(encode_info(info)) == info


def test_addresses_are_sent_without_the_peers_own_part() -> None:
    relay = Identity.generate().peer
    info = PeerInfo(
        ME.peer,
        ME.public_key_bytes,
        (
            Address.parse(f"/ip4/192.0.2.1/tcp/1/p2p/{ME.peer}"),
            Address.parse(f"/ip4/192.0.2.2/tcp/1/p2p/{relay}/p2p-circuit/p2p/{ME.peer}"),
        ),
    )
    assert [str(address) for address in decode_info(encode_info(info)).addresses] == [
        "/ip4/192.0.2.1/tcp/1",
        f"/ip4/192.0.2.2/tcp/1/p2p/{relay}/p2p-circuit",
    ]


@pytest.mark.parametrize(
    "key",
    [rsa.generate_private_key(65537, 2048).public_key(), ec.generate_private_key(ec.SECP256K1()).public_key()],
)
def test_peers_with_other_keys_are_known_by_their_ids(key: rsa.RSAPublicKey | ec.EllipticCurvePublicKey) -> None:
    data = bytes(Identify(public_key=encode_public_key(key)))
    assert decode_info(data).peer == peer_of(key)


@pytest.mark.parametrize("data", [b"", b"\xff", bytes(Identify(public_key=b"\x08\x09"))])
def test_a_message_without_a_key_is_none(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_info(data)


def test_no_more_is_taken_than_the_bounds_allow() -> None:
    address = Address.parse("/ip4/192.0.2.1/tcp/1")
    info = decode_info(
        bytes(
            Identify(
                public_key=ME.public_key_bytes,
                listen_addrs=[b"\xff\xff", *[address.to_bytes()] * MAX_ADDRESSES],
                protocols=["p" * (MAX_PROTOCOL_CHARS + 1), *["p" * MAX_PROTOCOL_CHARS] * MAX_PROTOCOLS],
                observed_addr=b"\xff",
                agent_version="v" * 1000,
                protocol_version="v" * 1000,
            )
        )
    )
    assert info.addresses == (address,) * (MAX_ADDRESSES - 1)
    assert len(info.protocols) == MAX_PROTOCOLS - 1
    assert info.observed is None
    assert info.agent_version == info.protocol_version == "v" * MAX_VERSION_CHARS


def test_a_host_with_many_addresses_stays_in_the_message_bound() -> None:
    long = Address.parse(f"/dns4/{'.'.join(['a' * 60] * 4)}/tcp/1")
    info = PeerInfo(ME.peer, ME.public_key_bytes, (long,) * 1000)
    assert len(encode_info(info)) <= MAX_MESSAGE_BYTES


@given(identify_messages().map(bytes) | damaged(identify_messages().map(bytes)))
def test_any_message_decodes_or_is_the_peers_fault(data: bytes) -> None:
    try:
        info = decode_info(data)
    except RemoteProtocolError:
        return
    assert len(info.addresses) <= MAX_ADDRESSES
