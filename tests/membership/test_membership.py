"""Getting in, staying in and getting out, on a virtual clock against a control plane that is a value."""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio
from trio.testing import MockClock

from agentmesh.control_plane.client import Issued
from agentmesh.control_plane.errors import ControlPlaneUnavailableError, EnrollmentRejectedError
from agentmesh.credentials import ROLE_NODE, ROLE_ROUTER, SigningKey
from agentmesh.errors import AddressError, CredentialError
from agentmesh.identity import Identity
from agentmesh.membership import Enrollment, Membership, StateDir, open_membership
from agentmesh.membership.membership import KEYS_SYNC_INTERVAL
from agentmesh.runtime.nursery import open_background
from agentmesh.testing import cancel_at_every_await
from tests.membership.plane import NODE_TOKEN, Client, Plane, wall_clock

HOUR = 3600.0
DAY = 24 * HOUR
URL = "http://cp"


def membership_of(
    plane: Plane, identity: Identity, state: StateDir | None = None, *, url: str = URL, token: str | None = NODE_TOKEN
) -> Membership:
    return Membership(identity, plane.client(identity), Enrollment(control_plane=url, token=token), state, wall_clock)


@asynccontextmanager
async def running(membership: Membership) -> AsyncGenerator[Membership]:
    """As a program has it: begun, and kept."""
    await membership.begin()
    async with open_background() as nursery:
        nursery.start_soon(membership.run)
        yield membership


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    return StateDir(tmp_path / "state")


# ── getting in ──


async def test_enrolling_gives_a_credential_that_others_honour(autojump_clock: MockClock) -> None:
    plane, identity = Plane(), Identity.generate()
    membership = membership_of(plane, identity)
    await membership.begin()
    assert (membership.credential.peer, membership.credential.role) == (identity.peer, ROLE_NODE)
    assert membership.verify(membership.token(), identity.peer) == membership.credential
    assert membership.trusted == plane.trusted


async def test_a_restart_resumes_and_spends_no_token(autojump_clock: MockClock, state: StateDir) -> None:
    plane = Plane()
    first = membership_of(plane, state.identity(), state)
    await first.begin()
    again = membership_of(plane, state.identity(), state, token=None)
    await again.begin()
    assert again.credential == first.credential
    assert plane.calls["enroll"] == 1


async def test_resuming_needs_no_control_plane(autojump_clock: MockClock, state: StateDir) -> None:
    plane = Plane()
    await membership_of(plane, state.identity(), state).begin()
    plane.is_away = True
    async with running(membership_of(plane, state.identity(), state)) as membership:
        membership.verify(membership.token(), membership.identity.peer)
        plane.is_away = False
        plane.keys.append(SigningKey.generate())
        await trio.sleep(KEYS_SYNC_INTERVAL + 1)
        assert membership.trusted == plane.trusted


async def test_resuming_waits_for_a_hanging_control_plane_a_bounded_time(
    autojump_clock: MockClock, state: StateDir
) -> None:
    plane = Plane()
    await membership_of(plane, state.identity(), state).begin()

    class Hanging(Client):
        async def _call(self, name: str) -> None:
            await trio.sleep_forever()

    identity = state.identity()
    enrollment = Enrollment(control_plane=URL)
    membership = Membership(identity, Hanging(plane, identity.peer), enrollment, state, wall_clock)
    began = trio.current_time()
    await membership.begin()
    assert trio.current_time() - began <= 10


async def test_a_saved_credential_of_another_mesh_is_not_shown_to_this_one(
    autojump_clock: MockClock, state: StateDir
) -> None:
    plane = Plane()
    await membership_of(plane, state.identity(), state).begin()
    await membership_of(plane, state.identity(), state, url="http://other").begin()
    assert plane.calls["enroll"] == 2
    await membership_of(plane, state.identity(), state, url="http://other/").begin()
    assert plane.calls["enroll"] == 2


@pytest.mark.parametrize(("left", "enrollments"), [(300.0, 1), (299.0, 2)])
async def test_what_is_about_to_expire_is_not_resumed_with(
    autojump_clock: MockClock, state: StateDir, left: float, enrollments: int
) -> None:
    plane = Plane(ttl=HOUR)
    await membership_of(plane, state.identity(), state).begin()
    await trio.sleep(HOUR - left)
    await membership_of(plane, state.identity(), state).begin()
    assert plane.calls["enroll"] == enrollments


async def test_a_control_plane_with_other_keys_is_another_mesh(autojump_clock: MockClock, state: StateDir) -> None:
    await membership_of(Plane(), state.identity(), state).begin()
    reset = Plane()
    membership = membership_of(reset, state.identity(), state)
    await membership.begin()
    assert (reset.calls["enroll"], membership.trusted) == (1, reset.trusted)


async def test_without_a_token_the_old_keys_are_kept(autojump_clock: MockClock, state: StateDir) -> None:
    plane = Plane()
    await membership_of(plane, state.identity(), state).begin()
    membership = membership_of(Plane(), state.identity(), state, token=None)
    await membership.begin()
    assert membership.trusted == plane.trusted


async def test_keys_that_changed_meanwhile_are_taken_on_and_kept(autojump_clock: MockClock, state: StateDir) -> None:
    plane = Plane()
    await membership_of(plane, state.identity(), state).begin()
    plane.keys.append(SigningKey.generate())
    membership = membership_of(plane, state.identity(), state)
    await membership.begin()
    saved = state.load()
    assert saved is not None
    assert saved.trusted == membership.trusted == plane.trusted


@pytest.mark.parametrize("with_state", [True, False])
async def test_neither_credential_nor_token_is_said_in_one_line(
    autojump_clock: MockClock, state: StateDir, with_state: bool
) -> None:
    membership = membership_of(Plane(), state.identity(), state if with_state else None, token=None)
    with pytest.raises(CredentialError, match="no bootstrap token") as caught:
        await membership.begin()
    assert URL in str(caught.value)
    assert (str(state.path) in str(caught.value)) is with_state


async def test_a_token_that_admits_nobody_is_the_control_planes_word(autojump_clock: MockClock) -> None:
    membership = membership_of(Plane(), Identity.generate(), token="another mesh's")
    with pytest.raises(EnrollmentRejectedError, match="invalid bootstrap token"):
        await membership.begin()


async def test_a_credential_of_another_role_is_of_no_use(autojump_clock: MockClock, state: StateDir) -> None:
    plane, identity = Plane(), state.identity()
    await membership_of(plane, identity, state).begin()
    enrollment = Enrollment(control_plane=URL, role=ROLE_ROUTER)
    with pytest.raises(CredentialError, match="no bootstrap token"):
        await Membership(identity, plane.client(identity), enrollment, state, wall_clock).begin()
    enrollment = attrs.evolve(enrollment, token=NODE_TOKEN)
    with pytest.raises(CredentialError, match="for role mesh:role:node, needed is mesh:role:router"):
        await Membership(identity, plane.client(identity), enrollment, state, wall_clock).begin()


async def test_enrolling_that_is_cancelled_anywhere_can_be_begun_again(
    autojump_clock: MockClock, state: StateDir
) -> None:
    """The token is good for one enrollment; whenever it is spent, its credential reaches us the next time."""
    identity, spent = state.identity(), set[str]()
    plane = Plane()

    class Single(Client):
        async def enroll(self, token: str, **options: object) -> Issued:
            await trio.lowlevel.checkpoint()
            if token in spent:
                raise EnrollmentRejectedError("not enrolled: the token is exhausted")
            issued = await Client.enroll(self, token)
            spent.add(token)
            await trio.sleep(1)  # the answer is on its way
            return issued

    def begin() -> Membership:
        return Membership(
            identity, Single(plane, identity.peer), Enrollment(control_plane=URL, token=NODE_TOKEN), state, wall_clock
        )

    async def operation() -> None:
        await begin().begin()

    assert await cancel_at_every_await(operation) >= 3
    assert plane.calls["issue"] == 1


async def test_a_control_plane_that_keeps_us_waiting_is_named_but_not_its_password(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    enrollment = Enrollment(control_plane="http://me:secret@cp/at@here/", token=NODE_TOKEN)
    plane, identity = Plane(is_away=True, patience=35.0), Identity.generate()
    with pytest.raises(ControlPlaneUnavailableError):
        await Membership(identity, plane.client(identity), enrollment, None, wall_clock).begin()
    waiting = [record for record in caplog.records if "not in yet" in record.message]
    assert [vars(record)["control_plane"] for record in waiting] == ["http://cp/at@here"] * 3
    assert "secret" not in repr(enrollment)


async def test_a_url_that_is_none_is_an_error_of_the_mesh() -> None:
    for url in ("cp:8080", "ftp://cp", "http://", "http://a\n", ""):
        with pytest.raises(AddressError, match="no HTTP URL"):
            async with open_membership(Identity.generate(), Enrollment(control_plane=url)):
                raise AssertionError("unreachable")


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
