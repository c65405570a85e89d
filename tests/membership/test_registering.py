"""Getting in, and staying in, by the token of an identity provider that stands in a file and is replaced there."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

from agentmesh.control_plane.config import Config
from agentmesh.control_plane.errors import RequestRefusedError
from agentmesh.control_plane.oidc.trust import Trust, TrustedIssuer
from agentmesh.control_plane.policy.document import parse_policy
from agentmesh.control_plane.server import ControlPlane, open_control_plane
from agentmesh.credentials import ROLE_NODE, ROLE_ROUTER
from agentmesh.errors import CredentialError
from agentmesh.identity import Identity
from agentmesh.membership import Enrollment, Membership, StateDir, open_membership
from tests.control_plane.oidc.provider import IdentityProvider, open_provider
from tests.control_plane.plane import Clock

HOUR = 3600.0
POLICY = parse_policy(
    {
        "roles": [{"name": ROLE_NODE, "allowed_labels": ["site=*"]}, {"name": ROLE_ROUTER}],
        "bindings": [{"role": role, "members": ["user:ci"]} for role in (ROLE_NODE, ROLE_ROUTER)],
    }
)


@attrs.frozen
class Cluster:
    """A platform that puts tokens into a file, and a control plane that takes them."""

    plane: ControlPlane
    provider: IdentityProvider
    file: Path
    clock: Clock

    def project(self, **claims: Any) -> None:
        """Put a new token into the file."""
        self.file.write_text(self.provider.token("ci", **claims) + "\n")

    def enrollment(self, role: str = ROLE_NODE, **settings: Any) -> Enrollment:
        return Enrollment(control_plane=self.plane.url, jwt_path=self.file, role=role, retry_budget=0.0, **settings)

    @asynccontextmanager
    async def member(self, state: StateDir | None = None, **settings: Any) -> AsyncGenerator[Membership]:
        identity = state.identity() if state else Identity.generate()
        opening = open_membership(identity, self.enrollment(**settings), state=state, wall_clock=self.clock)
        async with opening as membership:
            yield membership


@asynccontextmanager
async def open_cluster(folder: Path, **settings: Any) -> AsyncGenerator[Cluster]:
    clock = Clock()
    async with open_provider(clock) as provider:
        config = Config(
            bind_address="127.0.0.1:0",
            db_dsn=str(folder / "control-plane.db"),
            policy=POLICY,
            trust=Trust(issuers=(TrustedIssuer(provider.issuer, workload=True),)),
            **settings,
        )
        async with open_control_plane(config, clock) as plane:
            cluster = Cluster(plane, provider, folder / "token", clock)
            cluster.project()
            yield cluster


@pytest.mark.parametrize("role", [ROLE_NODE, ROLE_ROUTER])
async def test_a_member_registers_with_the_token_in_the_file(tmp_path: Path, role: str) -> None:
    async with open_cluster(tmp_path) as cluster, cluster.member(role=role) as member:
        assert (member.credential.role, member.credential.expires_at) == (role, cluster.clock.now + HOUR)


async def test_each_renewal_reads_the_file_anew(tmp_path: Path) -> None:
    async with open_cluster(tmp_path, workload_session_ttl=3 * HOUR) as cluster:
        state = StateDir(tmp_path / "state")
        async with cluster.member(state, labels={"site": "a"}) as member:
            began = cluster.clock.now
            for _ in range(4):  # and so goes beyond the first session's end
                cluster.clock.now += 0.9 * HOUR
                cluster.project()
                assert await member.renew()
                assert member.credential.expires_at == int(cluster.clock.now + HOUR)
            assert dict(member.credential.labels) == {"site": "a"}
        assert cluster.clock.now > began + 3 * HOUR
        async with cluster.member(state) as member:
            assert member.credential.expires_at == int(cluster.clock.now + HOUR)


@pytest.mark.parametrize("content", [None, "", "no token", "\xff"])
async def test_without_a_token_that_is_good_the_last_word_counts_until_the_session_ends(
    tmp_path: Path, content: str | None
) -> None:
    async with open_cluster(tmp_path, workload_session_ttl=3 * HOUR) as cluster, cluster.member() as member:
        session_ends_at = cluster.clock.now + 3 * HOUR
        if content is None:
            cluster.file.unlink()
        else:
            cluster.file.write_text(content, "latin-1")
        cluster.clock.now += 0.9 * HOUR
        assert await member.renew()
        assert member.credential.expires_at == session_ends_at
        cluster.clock.now = session_ends_at + 1
        with pytest.raises(CredentialError, match="expired and is not renewed"):
            await member.renew()


async def test_a_token_that_stays_is_shown_once(tmp_path: Path) -> None:
    """Or each renewal would end with it, however long the session lasts."""
    async with open_cluster(tmp_path) as cluster, cluster.member() as member:
        for _ in range(3):
            cluster.clock.now += 0.9 * HOUR
            assert await member.renew()
            assert member.credential.expires_at == int(cluster.clock.now + 24 * HOUR)


async def test_a_member_whose_session_is_over_registers_again(tmp_path: Path) -> None:
    async with open_cluster(tmp_path, workload_session_ttl=HOUR) as cluster, cluster.member() as member:
        cluster.clock.now += HOUR + 1
        cluster.project()
        assert await member.renew()
        assert member.credential.expires_at == int(cluster.clock.now + HOUR)


async def test_what_does_not_let_it_in_is_said_without_the_token(tmp_path: Path) -> None:
    async with open_cluster(tmp_path) as cluster:
        cluster.file.write_text(stranger := cluster.provider.token("eve"))
        with pytest.raises(RequestRefusedError, match="does not bind mesh:role:node") as refused:
            async with cluster.member():
                pass
        assert stranger not in str(refused.value)
        cluster.file.unlink()
        with pytest.raises(CredentialError, match=f"{cluster.file}: No such file or directory"):
            async with cluster.member():
                pass


def test_there_is_one_way_in() -> None:
    with pytest.raises(ValueError, match="not by both"):
        Enrollment(control_plane="http://cp", token="t", jwt_path=Path("x"))
