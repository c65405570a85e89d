import attrs
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.errors import RemoteProtocolError
from agentmesh.identity import Identity, encode_public_key, peer_of
from agentmesh.protocols.floodsub.events import Message
from agentmesh.protocols.floodsub.signing import MIN_NUMBER, sign_message, verify_message
from agentmesh.protocols.floodsub.wire import decode_rpc, encode_publish, encode_unsigned
from agentmesh.types import PeerId
from tests.protocols.floodsub.vectors import SEED, VECTORS, Vector

ALICE, BOB = Identity.generate(), Identity.generate()
WITH_MESSAGES = [vector for vector in VECTORS if decode_rpc(vector.data, 4096).messages]


@given(st.text(min_size=1, max_size=30), st.binary(max_size=100), st.integers(MIN_NUMBER, 2**64 - 1))
def test_what_is_signed_verifies_and_still_does_when_passed_on(topic: str, data: bytes, number: int) -> None:
    message = sign_message(ALICE, topic, data, number)
    verify_message(message)
    (got,) = decode_rpc(encode_publish(message), 4096).messages
    verify_message(got)
    assert (got.author, got.topics, got.data, int.from_bytes(got.seqno)) == (ALICE.peer, (topic,), data, number)


@pytest.mark.parametrize("vector", WITH_MESSAGES, ids=str)
def test_the_signatures_of_other_implementations_verify(vector: Vector) -> None:
    """Ed25519, secp256k1 and RSA; what is read is signed again, as every receiver of the same bytes would."""
    for message in decode_rpc(vector.data, 4096).messages:
        verify_message(message)


@pytest.mark.parametrize("implementation", sorted({vector.implementation for vector in VECTORS}))
def test_we_sign_as_other_implementations_do(implementation: str) -> None:
    """Ed25519 has one signature for a key and a text, so ours of the same text is theirs."""
    vectors = {(one.implementation, one.name): one.data for one in VECTORS}
    (theirs,) = decode_rpc(vectors[implementation, "ed25519 publish"], 4096).messages
    identity = Identity(Ed25519PrivateKey.from_private_bytes(SEED))
    ours = sign_message(identity, theirs.topics[0], theirs.data, int.from_bytes(theirs.seqno))
    assert (ours.signature, ours.signed) == (theirs.signature, theirs.signed)


MESSAGE = sign_message(ALICE, "t", b"data", MIN_NUMBER)


def said_otherwise(author: PeerId, topic: str, data: bytes) -> Message:
    return attrs.evolve(MESSAGE, author=author, signed=encode_unsigned(author, MESSAGE.seqno, (topic,), data))


@pytest.mark.parametrize(
    "message",
    [
        said_otherwise(ALICE.peer, "t", b"other"),
        said_otherwise(ALICE.peer, "other", b"data"),
        said_otherwise(BOB.peer, "t", b"data"),
        attrs.evolve(MESSAGE, signature=bytes(64)),
        attrs.evolve(MESSAGE, signature=b"short"),
        attrs.evolve(MESSAGE, key=BOB.public_key_bytes),
        attrs.evolve(said_otherwise(BOB.peer, "t", b"data"), key=ALICE.public_key_bytes),
        attrs.evolve(MESSAGE, key=b"no key"),
        attrs.evolve(MESSAGE, author=PeerId(b"\x12\x20" + bytes(32))),
    ],
    ids=["data", "topic", "author", "signature", "length", "key", "authors_key", "no_key", "no_inline_key"],
)
def test_what_its_author_did_not_sign_is_found_out(message: Message) -> None:
    with pytest.raises(RemoteProtocolError):
        verify_message(message)


def test_the_key_of_the_author_may_come_along_and_needs_not() -> None:
    verify_message(attrs.evolve(MESSAGE, key=ALICE.public_key_bytes))


def test_an_inline_id_of_a_key_that_is_none_is_found_out() -> None:
    secp = PeerId.from_bytes(bytes.fromhex("002508021221") + bytes(33))
    with pytest.raises(RemoteProtocolError):
        verify_message(attrs.evolve(MESSAGE, author=secp))


def test_a_hashed_id_needs_its_key() -> None:
    key = rsa.generate_private_key(65537, 2048).public_key()
    with pytest.raises(RemoteProtocolError, match="does not verify"):
        verify_message(attrs.evolve(MESSAGE, author=peer_of(key), key=encode_public_key(key)))


def test_no_number_of_ours_begins_with_a_zero() -> None:
    assert sign_message(ALICE, "t", b"", MIN_NUMBER).seqno[0] == 1
