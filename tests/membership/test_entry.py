"""Getting in: by the saved credential, by a token, by what an earlier attempt got; on a virtual clock against a control
plane that is a value.
"""

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
from agentmesh.testing import cancel_at_every_await
from tests.membership.plane import NODE_TOKEN, URL, Client, Plane, membership_of, running, wall_clock

HOUR = 3600.0


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    return StateDir(tmp_path / "state")


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


async def test_labels_that_a_saved_credential_lacks_are_told_of(
    autojump_clock: MockClock, state: StateDir, caplog: pytest.LogCaptureFixture
) -> None:
    plane, identity = Plane(), state.identity()
    await membership_of(plane, identity, state).begin()
    for labels, told in (({}, []), ({"site": "b", "arch": "arm"}, ["arch=arm site=b"])):
        enrollment = Enrollment(control_plane=URL, labels=labels)
        await Membership(identity, plane.client(identity), enrollment, state, wall_clock).begin()
        assert [vars(one)["labels"] for one in caplog.records if one.message.endswith("lacks labels")] == told


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


@pytest.mark.parametrize(("left", "renewals"), [(300.0, 0), (299.0, 1)])
async def test_what_is_about_to_expire_is_renewed_and_spends_no_token(
    autojump_clock: MockClock, state: StateDir, left: float, renewals: int
) -> None:
    plane = Plane(ttl=HOUR)
    await membership_of(plane, state.identity(), state).begin()
    await trio.sleep(HOUR - left)
    membership = membership_of(plane, state.identity(), state)
    await membership.begin()
    assert (plane.calls["enroll"], plane.calls["refresh"]) == (1, renewals)
    saved = state.load()
    assert saved is not None
    assert saved.token == membership.token() == plane.last[state.identity().peer].credential


async def test_what_has_expired_is_not_redeemed_and_costs_a_token(autojump_clock: MockClock, state: StateDir) -> None:
    plane = Plane(ttl=HOUR)
    await membership_of(plane, state.identity(), state).begin()
    await trio.sleep(HOUR + 1)
    await membership_of(plane, state.identity(), state).begin()
    assert (plane.calls["enroll"], plane.calls["refresh"]) == (2, 1)
    await trio.sleep(HOUR + 1)
    with pytest.raises(CredentialError, match="and no bootstrap token"):
        await membership_of(plane, state.identity(), state, token=None).begin()


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
