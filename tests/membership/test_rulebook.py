"""The rules of the mesh, followed: what holds before they are known, while the control plane is away, and after."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from random import Random

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.authorization import Call
from agentmesh.control_plane.errors import ControlPlaneUnavailableError
from agentmesh.credentials import ROLE_NODE, Credential, SigningKey, TrustedKeys, mint, verify
from agentmesh.errors import CredentialError
from agentmesh.membership.rulebook import HURRY_JITTER, RULES_RETRY_INTERVAL, RULES_SYNC_INTERVAL, Rulebook
from agentmesh.types import PeerId
from tests.membership.plane import OPEN_RULES

KEY = SigningKey.generate()
TRUSTED = TrustedKeys(frozenset({KEY.public}))
CALL = Call("mcp", "calc", "POST", "/")


def credential(n: int) -> Credential:
    peer = PeerId.from_ed25519(bytes([n]) * 32)
    token = mint(KEY, peer=peer, role=ROLE_NODE, labels={}, expires_at=2e9)
    return verify(token, peer=peer, trusted=TRUSTED, now=1e9)


CALLER, PROVIDER = credential(1), credential(2)


@attrs.define
class Source:
    """Where rules come from."""

    rules: tuple[str, ...] = OPEN_RULES
    is_away: bool = False
    calls: int = 0

    async def fetch(self) -> tuple[str, ...]:
        self.calls += 1
        await trio.lowlevel.checkpoint()
        if self.is_away:
            raise ControlPlaneUnavailableError("away")
        return self.rules


@asynccontextmanager
async def following(source: Source) -> AsyncGenerator[Rulebook]:
    rulebook = Rulebook(source.fetch, Random(1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rulebook.run)
        await wait_all_tasks_blocked()
        yield rulebook
        nursery.cancel_scope.cancel()


def verdict(rulebook: Rulebook) -> str:
    try:
        rulebook.check(CALLER, PROVIDER, CALL, TRUSTED)
    except CredentialError as exc:
        return exc.reason
    return "allowed"


async def test_nothing_is_allowed_before_the_rules_are_known(autojump_clock: MockClock) -> None:
    source = Source(is_away=True)
    async with following(source) as rulebook:
        assert (rulebook.is_known, verdict(rulebook)) == (False, "undecided")
        source.is_away = False
        await rulebook.wait_known()
        assert RULES_RETRY_INTERVAL <= trio.current_time() <= 1.1 * RULES_RETRY_INTERVAL
        assert (rulebook.is_known, verdict(rulebook)) == (True, "allowed")


async def test_the_last_rules_hold_while_the_control_plane_is_away(autojump_clock: MockClock) -> None:
    source = Source()
    async with following(source) as rulebook:
        source.is_away, source.rules = True, ()
        await trio.sleep(10 * RULES_SYNC_INTERVAL)
        assert verdict(rulebook) == "allowed"
        source.is_away = False
        await trio.sleep(2 * RULES_RETRY_INTERVAL)
        assert verdict(rulebook) == "denied"


async def test_rules_are_read_again_every_quarter_of_an_hour_and_not_by_all_at_once(autojump_clock: MockClock) -> None:
    source = Source()
    async with following(source):
        await trio.sleep(RULES_SYNC_INTERVAL - 1)
        assert source.calls == 1
        await trio.sleep(0.1 * RULES_SYNC_INTERVAL + 2)
        assert source.calls == 2


async def test_a_new_policy_holds_within_seconds_of_being_told(autojump_clock: MockClock) -> None:
    source = Source(rules=())
    async with following(source) as rulebook:
        assert verdict(rulebook) == "denied"
        source.rules = OPEN_RULES
        rulebook.hurry()
        await trio.sleep(HURRY_JITTER)
        assert (verdict(rulebook), source.calls) == ("allowed", 2)


async def test_many_words_of_a_new_policy_are_one_look(autojump_clock: MockClock) -> None:
    source = Source()
    async with following(source) as rulebook:
        for _ in range(100):
            rulebook.hurry()
        await trio.sleep(10 * HURRY_JITTER)
        assert source.calls == 2


async def test_rules_that_are_none_leave_the_last_ones(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    source = Source()
    async with following(source) as rulebook:
        source.rules = (*OPEN_RULES, "no rule")
        rulebook.hurry()
        await trio.sleep(HURRY_JITTER)
        assert (verdict(rulebook), source.calls) == ("allowed", 2)
    assert "the policy was not read" in caplog.text
