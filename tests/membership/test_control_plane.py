"""A membership and a real control plane, over HTTP on the loopback."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio

from agentmesh.control_plane.config import Config
from agentmesh.control_plane.errors import ControlPlaneUnavailableError, EnrollmentRejectedError
from agentmesh.control_plane.policy.open import OPEN_POLICY
from agentmesh.control_plane.server import ControlPlane, open_control_plane
from agentmesh.credentials import ROLE_NODE, ROLE_ROUTER
from agentmesh.errors import CredentialError
from agentmesh.identity import Identity
from agentmesh.membership import Enrollment, StateDir, open_membership
from agentmesh.membership.state import CREDENTIAL_FILE
from tests.control_plane.plane import Clock


@asynccontextmanager
async def control_plane(folder: Path, clock: Clock, address: str = "127.0.0.1:0") -> AsyncGenerator[ControlPlane]:
    config = Config(
        bind_address=address,
        db_dsn=str(folder / "control-plane.db"),
        auto_approve_enrollment=True,
        policy=OPEN_POLICY,
        biscuit_ttl=3600.0,
    )
    async with open_control_plane(config, clock) as plane:
        yield plane


def enrollment(plane: ControlPlane, token: str | None, role: str = ROLE_NODE) -> Enrollment:
    return Enrollment(control_plane=plane.url, token=token, role=role, retry_budget=0.0)


async def test_a_member_enrolls_resumes_renews_and_enrolls_again(tmp_path: Path) -> None:
    clock, state = Clock(), StateDir(tmp_path / "state")
    async with control_plane(tmp_path, clock) as plane:
        way = enrollment(plane, await plane.create_token(ROLE_NODE, max_usages=2, ttl=7200))
        async with open_membership(state.identity(), way, state=state, wall_clock=clock) as membership:
            first = membership.credential
            clock.now += 1800
            assert await membership.renew()
            assert membership.credential.expires_at == first.expires_at + 1800
            second = membership.credential
        without = attrs.evolve(way, token=None)
        async with open_membership(state.identity(), without, state=state, wall_clock=clock) as membership:
            assert membership.credential == second
            clock.now += 3601  # it has expired: the control plane refuses to renew it
            with pytest.raises(CredentialError, match="expired and is not renewed"):
                await membership.renew()
        async with open_membership(state.identity(), way, state=state, wall_clock=clock) as membership:
            assert membership.credential.expires_at == clock.now + 3600
            assert membership.credential.peer == first.peer


async def test_who_was_not_there_to_hear_that_he_is_enrolled_gets_in_with_a_spent_token(tmp_path: Path) -> None:
    clock, state = Clock(), StateDir(tmp_path / "state")
    async with control_plane(tmp_path, clock) as plane:
        way = enrollment(plane, await plane.create_token(ROLE_NODE))
        async with open_membership(state.identity(), way, state=state, wall_clock=clock) as membership:
            first = membership.credential
        (state.path / CREDENTIAL_FILE).unlink()
        clock.now += 60
        async with open_membership(state.identity(), way, state=state, wall_clock=clock) as membership:
            assert membership.credential == first
        with pytest.raises(EnrollmentRejectedError):
            async with open_membership(Identity.generate(), way, wall_clock=clock):
                raise AssertionError("unreachable")


@pytest.mark.parametrize("token", ["mesh-bt-" + "0" * 32, "nonsense"])
async def test_a_wrong_token_is_refused_in_one_line(tmp_path: Path, token: str) -> None:
    clock = Clock()
    async with control_plane(tmp_path, clock) as plane:
        with pytest.raises(EnrollmentRejectedError, match="not enrolled: .*token") as caught:
            async with open_membership(Identity.generate(), enrollment(plane, token), wall_clock=clock):
                raise AssertionError("unreachable")
    assert token not in str(caught.value)


async def test_a_token_for_another_role_is_refused_and_not_spent(tmp_path: Path) -> None:
    clock = Clock()
    async with control_plane(tmp_path, clock) as plane:
        token = await plane.create_token(ROLE_NODE)
        with pytest.raises(EnrollmentRejectedError, match="role"):
            async with open_membership(Identity.generate(), enrollment(plane, token, ROLE_ROUTER), wall_clock=clock):
                raise AssertionError("unreachable")
        async with open_membership(Identity.generate(), enrollment(plane, token), wall_clock=clock) as membership:
            assert membership.credential.role == ROLE_NODE


async def test_a_control_plane_that_is_down_is_named_once_the_budget_is_spent() -> None:
    way = Enrollment(control_plane="http://127.0.0.1:1", token="a token", retry_budget=0.2)
    with trio.fail_after(5), pytest.raises(ControlPlaneUnavailableError, match="http://127.0.0.1:1.* does not answer"):
        async with open_membership(Identity.generate(), way):
            raise AssertionError("unreachable")


async def test_another_control_plane_at_the_same_url_is_joined_anew(tmp_path: Path) -> None:
    clock, state = Clock(), StateDir(tmp_path / "state")
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    async with control_plane(first, clock) as plane:
        url = plane.url
        way = enrollment(plane, await plane.create_token(ROLE_NODE))
        async with open_membership(state.identity(), way, state=state, wall_clock=clock) as membership:
            old = membership.trusted
    async with control_plane(second, clock, url.removeprefix("http://")) as plane:
        way = enrollment(plane, await plane.create_token(ROLE_NODE))
        async with open_membership(state.identity(), way, state=state, wall_clock=clock) as membership:
            assert membership.trusted == plane.authority.trusted != old


async def test_key_rotation_while_members_offline(tmp_path: Path) -> None:
    """While the old key is honoured a member comes back by itself."""
    clock, state = Clock(), StateDir(tmp_path / "state")
    async with control_plane(tmp_path, clock) as plane:
        way = enrollment(plane, await plane.create_token(ROLE_NODE))
        async with open_membership(state.identity(), way, state=state, wall_clock=clock):
            pass
        without = attrs.evolve(way, token=None)
        await plane.authority.rotate(grace=600.0)
        clock.now += 599
        async with open_membership(state.identity(), without, state=state, wall_clock=clock) as membership:
            assert membership.trusted == plane.authority.trusted
            assert await membership.renew()
            plane.authority.verify(membership.token(), membership.identity.peer)


async def test_key_rotation_past_grace_while_members_offline(tmp_path: Path) -> None:
    """Later on it needs an invitation."""
    clock, state = Clock(), StateDir(tmp_path / "state")
    async with control_plane(tmp_path, clock) as plane:
        way = enrollment(plane, await plane.create_token(ROLE_NODE, max_usages=2, ttl=7200))
        async with open_membership(state.identity(), way, state=state, wall_clock=clock):
            pass
        await plane.authority.rotate(grace=600.0)
        clock.now += 601
        without = attrs.evolve(way, token=None)
        async with open_membership(state.identity(), without, state=state, wall_clock=clock) as membership:
            assert not await membership.renew()
        async with open_membership(state.identity(), way, state=state, wall_clock=clock) as membership:
            assert membership.trusted == plane.authority.trusted
            plane.authority.verify(membership.token(), membership.identity.peer)


@pytest.mark.parametrize("allowed", [True, False])
async def test_autonomous_recovery_while_members_offline(tmp_path: Path, allowed: bool) -> None:
    """Who may, comes back after any time, with what it kept; and then as before."""
    clock, state = Clock(), StateDir(tmp_path / "state")
    async with control_plane(tmp_path, clock) as plane:
        way = enrollment(plane, await plane.create_token(ROLE_NODE))
        async with open_membership(state.identity(), way, state=state, wall_clock=clock) as membership:
            first = membership.credential
        assert await plane.store.access.set_autonomous_recovery(first.peer, allowed)
        without = attrs.evolve(way, token=None)
        for _ in range(2):
            await plane.authority.rotate(grace=600.0)
            await plane.authority.rotate(grace=600.0)
            clock.now += 40 * 86400
            opening = open_membership(state.identity(), without, state=state, wall_clock=clock)
            if not allowed:
                with pytest.raises(CredentialError, match="and no bootstrap token"):
                    await opening.__aenter__()
                continue
            async with opening as membership:
                assert (membership.credential.peer, membership.trusted) == (first.peer, plane.authority.trusted)
                plane.authority.verify(membership.token(), first.peer)
                assert await membership.renew()
