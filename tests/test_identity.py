"""Keys come and go in libp2p's encodings, key files are the owner's alone, signatures verify and nothing else does."""

import itertools
import os
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448, padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.errors import IdentityError, RemoteProtocolError
from agentmesh.identity import (
    CHALLENGE_WINDOW,
    Identity,
    challenge_text,
    encode_public_key,
    peer_of,
    public_key_of,
    verify,
    verify_signature,
)
from agentmesh.types import PeerId
from agentmesh.wire.messages.libp2p.crypto import KeyType, PrivateKey, PublicKey

# The test vectors of the libp2p specification "peer-ids".
ED25519_PRIVATE = bytes.fromhex(
    "080112407e0830617c4a7de83925dfb2694556b12936c477a0e1feb2e148ec9da60fee7d"
    "1ed1e8fae2c4a144b8be8fd4b47bf3d3b34b871c3cacf6010f0e42d474fce27e"
)
ED25519_PUBLIC = bytes.fromhex("080112201ed1e8fae2c4a144b8be8fd4b47bf3d3b34b871c3cacf6010f0e42d474fce27e")
SECP256K1_PUBLIC = bytes.fromhex("08021221037777e994e452c21604f91de093ce415f5432f701dd8cd1a7a6fea0e630bfca99")
ECDSA_PUBLIC = bytes.fromhex(
    "0803125b3059301306072a8648ce3d020106082a8648ce3d03010703420004de3d300fa36ae0e8f5d530899d83abab44abf3161f162a"
    "4bc901d8e6ecda020e8b6d5f8da30525e71d6851510c098e5c47c646a597fb4dcec034e9f77c409e62"
)
SEED, PUBLIC = ED25519_PRIVATE[4:36], ED25519_PRIVATE[36:]

KNOWN = Identity.from_protobuf(ED25519_PRIVATE)
RSA_KEY = rsa.generate_private_key(65537, 2048)

seeds = st.binary(min_size=32, max_size=32)


def identity_of(seed: bytes) -> Identity:
    return Identity(Ed25519PrivateKey.from_private_bytes(seed))


def spki(key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey | ed448.Ed448PublicKey) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


class TestEncodings:
    def test_golden_identity(self) -> None:
        assert str(KNOWN.peer) == "12D3KooWBtg3aaRMjxwedh83aGiUkwSxDwUZkzuJcfaqUmo7R3pq"
        assert KNOWN.public_key_bytes == ED25519_PUBLIC
        assert KNOWN.to_protobuf() == ED25519_PRIVATE
        assert KNOWN.sign(b"mesh").hex() == (
            "bd021e241cca0327ec3654edbee8395886f38aba1f6fb35621dce89507b1470c"
            "d6e1a11d2d317e8430a5d93c749ded22019fbb0239c222bcac0640fea4084107"
        )

    @given(seeds)
    def test_private_keys_round_trip(self, seed: bytes) -> None:
        identity = identity_of(seed)
        again = Identity.from_protobuf(identity.to_protobuf())
        assert again == identity
        assert again.to_protobuf() == identity.to_protobuf()
        assert again.peer.ed25519 == identity.public_key_bytes[4:]

    def test_the_older_encoding_with_the_public_key_twice_is_read(self) -> None:
        older = bytes(PrivateKey(type=KeyType.ED25519, data=SEED + PUBLIC + PUBLIC))
        assert Identity.from_protobuf(older).to_protobuf() == ED25519_PRIVATE

    @pytest.mark.parametrize(
        ("data", "says"),
        [
            (b"", "not an Ed25519"),
            (b"\x08", "libp2p's encoding"),
            (b"-----BEGIN PRIVATE KEY-----", "libp2p's encoding"),
            (bytes(PrivateKey(type=KeyType.SECP256K1, data=SEED)), "not an Ed25519"),
            (bytes(PrivateKey(type=KeyType.ED25519)), "another length"),
            (bytes(PrivateKey(type=KeyType.ED25519, data=SEED)), "another length"),
            (bytes(PrivateKey(type=KeyType.ED25519, data=SEED + PUBLIC + SEED)), "another length"),
            (bytes(PrivateKey(type=KeyType.ED25519, data=SEED + SEED)), "public key of another"),
        ],
    )
    def test_what_is_no_private_key_is_refused(self, data: bytes, says: str) -> None:
        with pytest.raises(IdentityError, match=says):
            Identity.from_protobuf(data)

    @given(st.binary(max_size=100))
    def test_any_bytes_are_a_private_key_or_an_identity_error(self, data: bytes) -> None:
        try:
            identity = Identity.from_protobuf(data)
        except IdentityError:
            return
        assert Identity.from_protobuf(identity.to_protobuf()) == identity

    def test_two_new_identities_differ(self) -> None:
        assert Identity.generate() != Identity.generate()

    def test_its_representation_holds_no_secret(self) -> None:
        assert repr(KNOWN) == f"Identity(peer={KNOWN.peer!r})"


class TestPublicKeys:
    @pytest.mark.parametrize(
        ("encoded", "peer"),
        [
            (ED25519_PUBLIC, "12D3KooWBtg3aaRMjxwedh83aGiUkwSxDwUZkzuJcfaqUmo7R3pq"),
            (SECP256K1_PUBLIC, "16Uiu2HAmLhLvBoYaoZfaMUKuibM6ac163GwKY74c5kiSLg5KvLpY"),
            (ECDSA_PUBLIC, "QmVMT29id3TUASyfZZ6k9hmNyc2nYabCo4uMSpDw4zrgDk"),
        ],
    )
    def test_golden_keys_and_their_peers(self, encoded: bytes, peer: str) -> None:
        key = public_key_of(encoded)
        assert encode_public_key(key) == encoded
        assert str(peer_of(key)) == peer
        assert PeerId.parse(peer) == peer_of(key)

    def test_an_rsa_key(self) -> None:
        encoded = bytes(PublicKey(type=KeyType.RSA, data=spki(RSA_KEY.public_key())))
        assert encoded.startswith(b"\x08\x00\x12")
        assert encode_public_key(public_key_of(encoded)) == encoded
        assert str(peer_of(RSA_KEY.public_key())).startswith("Qm")

    def test_another_encoding_of_a_key_is_the_same_peer(self) -> None:
        reordered = ED25519_PUBLIC[2:] + ED25519_PUBLIC[:2]
        assert peer_of(public_key_of(reordered)) == KNOWN.peer
        point = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256K1(), SECP256K1_PUBLIC[4:])
        long = point.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        assert encode_public_key(public_key_of(bytes(PublicKey(type=KeyType.SECP256K1, data=long)))) == SECP256K1_PUBLIC

    @pytest.mark.parametrize(
        ("kind", "data"),
        [
            (None, PUBLIC),
            (KeyType.ED25519, None),
            (KeyType.ED25519, PUBLIC[:-1]),
            (KeyType.SECP256K1, b"\x05" + PUBLIC),
            (KeyType.ECDSA, PUBLIC),
            (KeyType.RSA, PUBLIC),
            (KeyType(9), PUBLIC),
            (KeyType.RSA, ECDSA_PUBLIC[4:]),
            (KeyType.ECDSA, spki(RSA_KEY.public_key())),
            (KeyType.RSA, spki(rsa.generate_private_key(65537, 1024).public_key())),
            (KeyType.ECDSA, spki(ec.generate_private_key(ec.SECP256K1()).public_key())),  # an alias of type Secp256k1
            (KeyType.ECDSA, spki(ed448.Ed448PrivateKey.generate().public_key())),
        ],
        ids=itertools.count(),
    )
    def test_what_is_no_public_key_is_the_peers_fault(self, kind: KeyType | None, data: bytes | None) -> None:
        with pytest.raises(RemoteProtocolError):
            public_key_of(bytes(PublicKey(type=kind, data=data)))

    @given(
        st.binary(max_size=120), st.sampled_from([b"", b"\x08\x01\x12\x20", b"\x08\x02\x12\x21", ECDSA_PUBLIC[:-20]])
    )
    def test_any_bytes_are_a_public_key_or_the_peers_fault(self, data: bytes, head: bytes) -> None:
        try:
            key = public_key_of(head + data)
        except RemoteProtocolError:
            return
        assert encode_public_key(public_key_of(encode_public_key(key))) == encode_public_key(key)


class TestSignatures:
    @given(seeds, st.binary(max_size=100))
    def test_a_peer_signs_and_is_believed(self, seed: bytes, data: bytes) -> None:
        identity = identity_of(seed)
        signature = identity.sign(data)
        assert verify_signature(identity.peer, data, signature)
        assert not verify_signature(identity.peer, data + b"!", signature)
        assert not verify_signature(KNOWN.peer, data, signature) or identity == KNOWN

    @given(st.binary(max_size=70))
    def test_any_bytes_are_no_signature(self, noise: bytes) -> None:
        assert not verify_signature(KNOWN.peer, b"data", noise)

    @given(seeds)
    def test_an_id_with_a_key_that_is_none_signs_nothing(self, noise: bytes) -> None:
        assert not verify_signature(PeerId.from_ed25519(noise), b"data", bytes(64))

    def test_an_id_that_holds_no_key_is_not_believed(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        signature = key.sign(b"data", ec.ECDSA(SHA256()))
        assert verify(key.public_key(), b"data", signature)
        assert not verify_signature(peer_of(key.public_key()), b"data", signature)

    def test_the_other_kinds_of_keys(self) -> None:
        signature = RSA_KEY.sign(b"data", padding.PKCS1v15(), SHA256())
        assert verify(RSA_KEY.public_key(), b"data", signature)
        assert not verify(RSA_KEY.public_key(), b"datum", signature)
        key = ec.generate_private_key(ec.SECP256K1())
        signature = key.sign(b"data", ec.ECDSA(SHA256()))
        assert verify(key.public_key(), b"data", signature)
        assert not verify(key.public_key(), b"data", b"no DER")

    def test_golden_challenge(self) -> None:
        text = challenge_text("enroll", KNOWN.peer, 1_774_008_000_000)
        assert text == b"mesh:enroll:12D3KooWBtg3aaRMjxwedh83aGiUkwSxDwUZkzuJcfaqUmo7R3pq:1774008000000"
        assert CHALLENGE_WINDOW == 300.0


class TestKeyFiles:
    def test_a_saved_key_is_the_owners_alone(self, tmp_path: Path) -> None:
        path = tmp_path / "new" / "identity.key"
        KNOWN.save(path)
        assert path.read_bytes() == ED25519_PRIVATE
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert [file.name for file in path.parent.iterdir()] == ["identity.key"]
        assert Identity.load(path) == KNOWN

    def test_saving_replaces_what_was_there(self, tmp_path: Path) -> None:
        path = tmp_path / "identity.key"
        Identity.generate().save(path)
        KNOWN.save(str(path))
        assert Identity.load(str(path)) == KNOWN

    def test_saving_that_fails_leaves_the_old_key_and_nothing_else(self, tmp_path: Path) -> None:
        path = tmp_path / "identity.key"
        (path / "in the way").mkdir(parents=True)
        with pytest.raises(OSError):
            KNOWN.save(path)
        assert [file.name for file in tmp_path.iterdir()] == ["identity.key"]

    @pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620, 0o601])
    def test_a_key_that_others_have_a_right_to_is_refused(self, tmp_path: Path, mode: int) -> None:
        path = tmp_path / "identity.key"
        KNOWN.save(path)
        path.chmod(mode)
        with pytest.raises(IdentityError, match=rf"identity\.key has mode {mode:04o}"):
            Identity.load(path)
        with pytest.raises(IdentityError):
            Identity.load_or_create(path)

    @pytest.mark.parametrize("data", [b"", b"not a key", ED25519_PRIVATE[:-1], bytes(1 << 20)])
    def test_a_malformed_key_file_is_named_and_kept(self, tmp_path: Path, data: bytes) -> None:
        path = tmp_path / "identity.key"
        path.touch(mode=0o600)
        path.write_bytes(data)
        with pytest.raises(IdentityError, match=r"key file .*identity\.key: "):
            Identity.load_or_create(path)
        assert path.read_bytes() == data

    def test_there_is_no_key_file(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            Identity.load(tmp_path / "identity.key")

    def test_a_key_is_made_once(self, tmp_path: Path) -> None:
        path = tmp_path / "deep" / "down" / "identity.key"
        made = Identity.load_or_create(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert [file.name for file in path.parent.iterdir()] == ["identity.key"]
        assert Identity.load_or_create(path) == made

    def test_of_two_that_make_it_at_once_the_first_wins(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "identity.key"
        link = os.link

        def late(temporary: str, target: Path) -> None:
            KNOWN.save(path)  # the other process was faster
            link(temporary, target)

        monkeypatch.setattr(os, "link", late)
        assert Identity.load_or_create(path) == KNOWN
        assert [file.name for file in tmp_path.iterdir()] == ["identity.key"]
