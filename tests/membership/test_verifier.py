"""What is remembered of verified credentials, and for how long."""

import pytest

from agentmesh.credentials import ROLE_NODE, SigningKey, TrustedKeys, mint
from agentmesh.errors import CredentialError
from agentmesh.identity import Identity
from agentmesh.membership.verifier import Verifier
from agentmesh.types import PeerId
from tests.control_plane.plane import Clock

KEY = SigningKey.generate()
TRUSTED = TrustedKeys(frozenset({KEY.public}))
PEER = Identity.generate().peer


def token_of(peer: PeerId, clock: Clock, *, ttl: float = 100.0, key: SigningKey = KEY) -> bytes:
    return mint(key, peer=peer, role=ROLE_NODE, labels={}, expires_at=clock.now + ttl)


def verifier_of(clock: Clock, max_peers: int = 4) -> Verifier:
    verifier = Verifier(clock, max_peers)
    verifier.trust(TRUSTED)
    return verifier


def test_the_same_token_is_verified_once() -> None:
    clock = Clock()
    verifier, token = verifier_of(clock), token_of(PEER, clock)
    first = verifier.verify(token, PEER)
    assert verifier.verify(bytes(bytearray(token)), PEER) is first


def test_a_new_token_of_a_peer_takes_the_place_of_the_old() -> None:
    clock = Clock()
    verifier = verifier_of(clock)
    old, new = token_of(PEER, clock), token_of(PEER, clock, ttl=200.0)
    assert verifier.verify(old, PEER).expires_at < verifier.verify(new, PEER).expires_at
    assert len(verifier) == 1
    assert verifier.verify(new, PEER) is verifier.verify(new, PEER)


def test_what_is_remembered_ends_with_the_credential() -> None:
    clock = Clock()
    verifier, token = verifier_of(clock), token_of(PEER, clock)
    verifier.verify(token, PEER)
    clock.now += 100.0
    verifier.verify(token, PEER)  # honoured up to and including its last second
    clock.now += 1.0
    with pytest.raises(CredentialError, match="expired"):
        verifier.verify(token, PEER)
    assert len(verifier) == 0


def test_a_token_is_remembered_for_its_own_peer_only() -> None:
    clock = Clock()
    verifier, token = verifier_of(clock), token_of(PEER, clock)
    verifier.verify(token, PEER)
    with pytest.raises(CredentialError) as caught:
        verifier.verify(token, Identity.generate().peer)
    assert caught.value.reason == "wrong_peer"


def test_a_key_that_is_not_trusted_any_more_takes_what_it_signed_with_it() -> None:
    clock = Clock()
    verifier, token = verifier_of(clock), token_of(PEER, clock)
    verifier.verify(token, PEER)
    verifier.trust(TRUSTED)
    assert len(verifier) == 1
    verifier.trust(TrustedKeys(frozenset({SigningKey.generate().public})))
    with pytest.raises(CredentialError) as caught:
        verifier.verify(token, PEER)
    assert caught.value.reason == "untrusted"


def test_refusals_are_not_remembered_and_forget_what_was() -> None:
    clock = Clock()
    verifier = verifier_of(clock)
    verifier.verify(token_of(PEER, clock), PEER)
    for _ in range(2):
        with pytest.raises(CredentialError):
            verifier.verify(token_of(PEER, clock, key=SigningKey.generate()), PEER)
        assert len(verifier) == 0


def test_no_more_peers_are_remembered_than_the_bound_and_the_stalest_goes_first() -> None:
    clock = Clock()
    verifier = verifier_of(clock, max_peers=2)
    tokens = {identity.peer: token_of(identity.peer, clock) for identity in (Identity.generate() for _ in range(3))}
    first, second, third = tokens
    found = {peer: verifier.verify(tokens[peer], peer) for peer in (first, second)}
    verifier.verify(tokens[first], first)
    verifier.verify(tokens[third], third)
    assert len(verifier) == 2
    assert verifier.verify(tokens[first], first) is found[first]
    assert verifier.verify(tokens[second], second) is not found[second]
