"""Staying in and getting out, on a virtual clock against a control plane that is a value."""

import logging
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from agentmesh.control_plane.errors import ControlPlaneUnavailableError
from agentmesh.credentials import ROLE_NODE, SigningKey, mint
from agentmesh.errors import CredentialError
from agentmesh.identity import Identity
from agentmesh.membership import Enrollment, Membership, StateDir
from agentmesh.membership.membership import KEYS_SYNC_INTERVAL, MIN_KEYS_SYNC_INTERVAL
from tests.membership.plane import NODE_TOKEN, URL, Plane, membership_of, running, wall_clock

HOUR = 3600.0
DAY = 24 * HOUR


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    return StateDir(tmp_path / "state")


# ── staying in ──


async def test_the_credential_is_renewed_in_time_and_saved_before_it_is_shown(
    autojump_clock: MockClock, state: StateDir
) -> None:
    plane = Plane(ttl=DAY)
    shown = list[bytes]()
    async with running(membership_of(plane, state.identity(), state)) as membership:
        first = membership.credential

        def renewed() -> None:
            saved = state.load()
            assert saved is not None
            assert saved.token == membership.token()
            shown.append(saved.token)

        membership.on_renewed(renewed)
        await trio.sleep(19.2 * HOUR - 1)
        assert membership.credential is first
        await trio.sleep(2)
        assert shown == [membership.token()] != [first.token]
        await trio.sleep(10 * DAY)
        assert len(shown) == 13
        assert membership.credential.expires_at > wall_clock()
    assert plane.calls["enroll"] == 1


async def test_a_clock_that_jumps_ahead_is_noticed(autojump_clock: MockClock) -> None:
    plane, identity = Plane(ttl=DAY), Identity.generate()
    slept = 0.0

    def jumping() -> float:
        return wall_clock() + slept

    plane.now = jumping
    membership = Membership(
        identity, plane.client(identity), Enrollment(control_plane=URL, token=NODE_TOKEN), None, jumping
    )
    async with running(membership):
        await trio.sleep(HOUR)
        slept = 20 * HOUR
        await trio.sleep(601)
        assert plane.calls["refresh"] == 1


async def test_a_renewal_that_fails_is_tried_again_soon(autojump_clock: MockClock) -> None:
    plane = Plane(ttl=DAY)
    async with running(membership_of(plane, Identity.generate())) as membership:
        first = membership.credential
        await trio.sleep(19 * HOUR)
        plane.is_away = True
        await trio.sleep(HOUR)
        assert membership.credential is first
        plane.is_away = False
        await trio.sleep(31)
        assert membership.credential is not first


async def test_two_who_renew_at_once_share_the_one_renewal(autojump_clock: MockClock) -> None:
    plane = Plane()
    membership = membership_of(plane, Identity.generate())
    await membership.begin()
    calls = list[None]()
    membership.on_renewed(lambda: calls.append(None))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(membership.renew)
        nursery.start_soon(membership.renew)
    assert (plane.calls["refresh"], len(calls)) == (1, 1)


async def test_one_whom_the_control_plane_forgot_enrolls_again(autojump_clock: MockClock) -> None:
    plane, identity = Plane(), Identity.generate()
    membership = membership_of(plane, identity)
    await membership.begin()
    plane.refuses.add(identity.peer)
    assert await membership.renew()
    assert plane.calls["enroll"] == 2


async def test_a_credential_signed_with_a_newer_key_brings_that_key_along(autojump_clock: MockClock) -> None:
    plane = Plane()
    membership = membership_of(plane, Identity.generate())
    await membership.begin()
    plane.keys.append(SigningKey.generate())
    assert await membership.renew()
    assert membership.trusted == plane.trusted


async def test_keys_are_followed(autojump_clock: MockClock, state: StateDir) -> None:
    plane = Plane()
    async with running(membership_of(plane, state.identity(), state)) as membership:
        plane.keys.append(SigningKey.generate())
        await trio.sleep(KEYS_SYNC_INTERVAL + 1)
        assert membership.trusted == plane.trusted
        plane.is_away = True
        await trio.sleep(KEYS_SYNC_INTERVAL)
        plane.is_away = False
        del plane.keys[0]
        await trio.sleep(KEYS_SYNC_INTERVAL)
        assert membership.trusted == plane.trusted
    saved = state.load()
    assert saved is not None
    assert saved.trusted == plane.trusted


async def test_a_new_key_brings_a_new_credential(autojump_clock: MockClock) -> None:
    """The old key is on its way out, and with it the credential that it signed."""
    plane = Plane()
    async with running(membership_of(plane, Identity.generate())) as membership:
        await trio.sleep(3 * KEYS_SYNC_INTERVAL)
        assert plane.calls["refresh"] == 0
        plane.keys.append(SigningKey.generate())
        await trio.sleep(KEYS_SYNC_INTERVAL + 1)
        assert plane.calls["refresh"] == 1
        del plane.keys[0]
        await trio.sleep(3 * KEYS_SYNC_INTERVAL)
        assert plane.calls["refresh"] == 1
        assert membership.verify(membership.token(), membership.identity.peer) == membership.credential


async def test_a_renewal_for_a_new_key_is_tried_until_it_is_there(autojump_clock: MockClock) -> None:
    plane, identity = Plane(), Identity.generate()
    async with running(membership_of(plane, identity)) as membership:
        plane.keys.append(SigningKey.generate())
        plane.refuses.add(identity.peer)
        plane.tokens.clear()
        await trio.sleep(3 * KEYS_SYNC_INTERVAL + 1)
        old = membership.credential
        plane.refuses.clear()
        await trio.sleep(KEYS_SYNC_INTERVAL)
        assert membership.credential is not old


async def test_who_resumes_while_there_are_two_keys_renews(autojump_clock: MockClock, state: StateDir) -> None:
    plane = Plane()
    await membership_of(plane, state.identity(), state).begin()
    plane.keys.append(SigningKey.generate())
    async with running(membership_of(plane, state.identity(), state)) as membership:
        old = membership.credential
        await trio.sleep(KEYS_SYNC_INTERVAL + 1)
        assert membership.credential is not old
    calls = plane.calls["refresh"]
    del plane.keys[0]
    async with running(membership_of(plane, state.identity(), state)):
        await trio.sleep(2 * KEYS_SYNC_INTERVAL)
    assert plane.calls["refresh"] == calls


async def test_a_credential_of_an_unknown_key_is_a_reason_to_look(autojump_clock: MockClock) -> None:
    plane, other = Plane(), Identity.generate()
    async with running(membership_of(plane, Identity.generate())) as membership:
        plane.keys.append(SigningKey.generate())
        plane.roles[other.peer] = ROLE_NODE
        token = plane.issue(other.peer).credential
        with pytest.raises(CredentialError):
            membership.verify(token, other.peer)
        await trio.sleep(MIN_KEYS_SYNC_INTERVAL + 1)
        assert membership.verify(token, other.peer).peer == other.peer
        looks = plane.calls["keys"]
        forged = mint(SigningKey.generate(), peer=other.peer, role=ROLE_NODE, labels={}, expires_at=2e9)
        for _ in range(60):
            with pytest.raises(CredentialError):
                membership.verify(forged, other.peer)
            await trio.sleep(1)
        assert plane.calls["keys"] - looks <= 60 / MIN_KEYS_SYNC_INTERVAL + 1


async def test_a_full_disk_ends_who_starts_but_not_who_is_up(
    autojump_clock: MockClock, state: StateDir, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plane, identity = Plane(), state.identity()
    membership = membership_of(plane, identity, state)
    await membership.begin()
    old = membership.credential

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    assert await membership.renew()
    assert membership.credential is not old
    assert "credential not saved" in caplog.text
    with pytest.raises(OSError, match="No space"):
        await membership_of(plane, identity, StateDir(state.path / "new")).begin()
    monkeypatch.undo()
    again = membership_of(plane, identity, state, token=None)
    await again.begin()  # with the old one, which the control plane has replaced
    assert await again.renew()
    assert again.token() == plane.last[identity.peer].credential


# ── getting out ──


async def test_an_expired_credential_that_is_not_renewed_ends_the_program(autojump_clock: MockClock) -> None:
    plane = Plane(ttl=HOUR)
    membership = membership_of(plane, Identity.generate())
    await membership.begin()
    plane.is_away = True
    began = trio.current_time()
    with pytest.raises(ExceptionGroup) as caught:
        await membership.run()
    (error,) = caught.value.exceptions
    assert isinstance(error, CredentialError)
    assert isinstance(error.__cause__, ControlPlaneUnavailableError)
    assert "expired" in str(error)
    assert "does not answer" in str(error)
    assert HOUR < trio.current_time() - began < HOUR + 35


async def test_a_refusal_is_no_end_while_the_credential_is_good(
    autojump_clock: MockClock, state: StateDir, caplog: pytest.LogCaptureFixture
) -> None:
    plane = Plane(ttl=HOUR)
    await membership_of(plane, state.identity(), state).begin()
    membership = membership_of(plane, state.identity(), state, token=None)
    await membership.begin()
    plane.refuses.add(membership.identity.peer)
    with pytest.raises(ExceptionGroup) as caught:
        await membership.run()
    assert trio.current_time() > HOUR
    (error,) = caught.value.exceptions
    assert "no bootstrap token" in str(error)


async def test_no_log_has_a_secret(
    autojump_clock: MockClock, state: StateDir, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    plane = Plane(ttl=DAY)
    async with running(membership_of(plane, state.identity(), state)) as membership:
        await trio.sleep(2 * DAY)
        plane.is_away = True
        await trio.sleep(12 * HOUR)
        token = membership.token()
    written = "".join(f"{record.getMessage()}{record.__dict__}" for record in caplog.records)
    assert "credential renewed" in written
    assert "not renewed" in written
    assert NODE_TOKEN not in written
    assert repr(token) not in written
