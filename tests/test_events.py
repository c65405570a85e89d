"""The control plane's events: who signed them, of when they are, and what they lack."""

import copy
import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.credentials import SigningKey, TrustedKeys
from agentmesh.errors import RemoteProtocolError
from agentmesh.events import (
    EVENT_WINDOW,
    MAX_EVENT_BYTES,
    Banned,
    KeyRotated,
    PolicyUpdated,
    UnknownEvent,
    is_fresh,
    read_event,
    sign_event,
)
from agentmesh.testing.strategies import damaged, peer_ids
from agentmesh.types import PeerId
from agentmesh.wire.messages.mesh.v1 import MeshEvent, MeshEventType

KEY, OTHER = SigningKey.generate(), SigningKey.generate()
TRUSTED = TrustedKeys(frozenset({KEY.public, OTHER.public}))
NOW = 1_900_000_000.0
PEER = PeerId.from_ed25519(b"p" * 32)
times = st.integers(0, 4_000_000_000).map(float)
events = st.one_of(
    st.builds(Banned, peer_ids(), times),
    st.builds(KeyRotated, st.binary(min_size=32, max_size=32), times),
    st.builds(PolicyUpdated, times),
)


@given(events, st.sampled_from([KEY, OTHER]))
def test_what_a_trusted_key_signed_comes_back(event: Banned | KeyRotated | PolicyUpdated, key: SigningKey) -> None:
    assert read_event(sign_event(key, event), TRUSTED) == event


@given(events, st.sampled_from([TrustedKeys(), TrustedKeys(frozenset({OTHER.public}))]))
def test_what_no_trusted_key_signed_is_refused(
    event: Banned | KeyRotated | PolicyUpdated, trusted: TrustedKeys
) -> None:
    with pytest.raises(RemoteProtocolError):
        read_event(sign_event(KEY, event), trusted)


@given(damaged(events.map(lambda event: sign_event(KEY, event))))
def test_damaged_events_are_the_senders_fault(data: bytes) -> None:
    try:
        event = read_event(data, TRUSTED)
    except RemoteProtocolError:
        return
    assert not isinstance(event, UnknownEvent)


def signed(message: MeshEvent) -> bytes:
    message = copy.copy(message)
    message.signature = KEY.sign(bytes(message))
    return bytes(message)


TIME = datetime.datetime.fromtimestamp(NOW, datetime.UTC)


@pytest.mark.parametrize(
    "message",
    [
        MeshEvent(type=MeshEventType.POLICY_UPDATE),
        MeshEvent(type=MeshEventType.BANNED, event_time=TIME),
        MeshEvent(type=MeshEventType.BANNED, event_time=TIME, peer_id="nobody"),
        MeshEvent(type=MeshEventType.KEY_ROTATION, event_time=TIME),
        MeshEvent(type=MeshEventType.KEY_ROTATION, event_time=TIME, new_public_key=bytes(31)),
        MeshEvent(type=MeshEventType.POLICY_UPDATE, event_time=TIME, peer_id="p" * MAX_EVENT_BYTES),
    ],
)
def test_an_event_that_lacks_what_its_type_needs_is_none(message: MeshEvent) -> None:
    with pytest.raises(RemoteProtocolError):
        read_event(signed(message), TRUSTED)


def test_a_banned_peer_is_known_by_any_spelling_of_its_id() -> None:
    message = MeshEvent(type=MeshEventType.BANNED, event_time=TIME, peer_id=PEER.dns_label)
    assert read_event(signed(message), TRUSTED) == Banned(PEER, NOW)


def test_an_event_of_a_type_that_is_news_to_us_is_one_all_the_same() -> None:
    message = MeshEvent(type=MeshEventType(99), event_time=TIME)
    assert read_event(signed(message), TRUSTED) == UnknownEvent(99, NOW)


def test_what_a_newer_control_plane_says_besides_is_signed_too() -> None:
    unsigned = bytes(MeshEvent(type=MeshEventType.POLICY_UPDATE, event_time=TIME)) + b"\x7a\x01x"
    data = unsigned + bytes(MeshEvent(signature=KEY.sign(unsigned)))
    assert read_event(data, TRUSTED) == PolicyUpdated(NOW)


@pytest.mark.parametrize(
    ("age", "fresh"), [(0, True), (EVENT_WINDOW, True), (-EVENT_WINDOW, True), (301, False), (-301, False)]
)
def test_an_event_is_fresh_for_five_minutes(age: float, fresh: bool) -> None:
    assert is_fresh(PolicyUpdated(NOW - age), NOW) is fresh
