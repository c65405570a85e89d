"""Enrollments, approvals, tokens and refreshes in any order, through the app, against a model of a few lines.

There are two control planes on the database, one that approves by itself and one that does not; each step calls one of
them, so nothing that matters can live in memory only.
"""

import shutil
import tempfile
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import attrs
import trio
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agentmesh.control_plane.tokens import token_id
from agentmesh.identity import Identity
from agentmesh.wire.messages.mesh.v1 import (
    BootstrapEnrollRequest,
    BootstrapEnrollResponse,
    EnrollmentStatus,
    TokenRefreshResponse,
)
from tests.control_plane.plane import Clock, Harness, bearer, open_harness

PENDING, APPROVED, REJECTED = EnrollmentStatus.PENDING, EnrollmentStatus.APPROVED, EnrollmentStatus.REJECTED
MEMBERS = 2
MAX_TOKENS = 6

T = TypeVar("T")


@attrs.define
class Token:
    value: str
    role: str
    max_usages: int
    expires_at: float
    used: int = 0
    revoked: bool = False

    def admits(self, now: float) -> bool:
        return not self.revoked and now < self.expires_at and self.used < self.max_usages


@attrs.define
class Peer:
    identity: Identity
    status: EnrollmentStatus | None = None
    token: Token | None = None
    role: str | None = None  # once it is approved
    credentials: list[bytes] = attrs.field(factory=list[bytes])
    last_request: tuple[BootstrapEnrollRequest, BootstrapEnrollResponse] | None = None

    def expect(self, token: Token, auto: bool, now: float) -> EnrollmentStatus:
        """What a request with this token is to be answered."""
        if not token.admits(now) or self.role not in (None, token.role):
            return REJECTED
        if self.status is REJECTED and token is self.token:
            return REJECTED
        return APPROVED if auto or self.status is APPROVED else PENDING


class Planes:
    """Two control planes on one database, in a thread of their own, for steps that are not async."""

    def __init__(self, clock: Clock) -> None:
        self._folder, self._clock = Path(tempfile.mkdtemp()), clock
        self._planes: dict[bool, Harness] = {}
        self._ready = threading.Event()
        self._thread = threading.Thread(target=trio.run, args=(self._main,))
        self._thread.start()
        self._ready.wait()

    async def _main(self) -> None:
        self._token, self._stop = trio.lowlevel.current_trio_token(), trio.Event()
        async with (
            open_harness(self._folder, self._clock, auto_approve_enrollment=False) as asking,
            open_harness(self._folder, self._clock, auto_approve_enrollment=True) as approving,
        ):
            self._planes = {False: asking, True: approving}
            self._ready.set()
            await self._stop.wait()

    def call(self, step: Callable[[Harness], Awaitable[T]], auto: bool) -> T:
        return trio.from_thread.run(step, self._planes[auto], trio_token=self._token)

    def close(self) -> None:
        self._token.run_sync_soon(self._stop.set)
        self._thread.join()
        shutil.rmtree(self._folder)


peers = st.integers(0, MEMBERS - 1)
numbers = st.integers(0, 99)
roles = st.sampled_from(["node", "router"])


class Enrollments(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.peers = [Peer(Identity.generate()) for _ in range(MEMBERS)]
        self.tokens: list[Token] = []
        self.planes = Planes(self.clock)

    def teardown(self) -> None:
        self.planes.close()

    def run(self, step: Callable[[Harness], Awaitable[T]], auto: bool = False) -> T:
        self.clock.now += 1
        return self.planes.call(step, auto)

    def pick(self, number: int, usable: bool) -> Token:
        """One of the tokens; of those that admit somebody, if that is asked for and there is one."""
        good = [token for token in self.tokens if token.admits(self.clock.now + 1)]
        among = good if usable and good else self.tokens
        return among[number % len(among)]

    @initialize()
    def make_first_tokens(self) -> None:
        for role in ("node", "router"):
            self.make_token(role, 3, 300)

    @precondition(lambda self: len(self.tokens) < MAX_TOKENS)
    @rule(role=roles, max_usages=st.integers(1, 3), ttl=st.integers(5, 100))
    def make_token(self, role: str, max_usages: int, ttl: int) -> None:
        value = self.run(lambda mesh: mesh.plane.create_token(role, max_usages=max_usages, ttl=ttl))
        self.tokens.append(Token(value, f"mesh:role:{role}", max_usages, self.clock.now + ttl))

    @precondition(lambda self: any(peer.status is PENDING for peer in self.peers))
    @rule(
        number=numbers,
        verb=st.sampled_from(["approve", "approve", "reject"]),
        first=st.sampled_from(["", "revoke", "expire"]),
    )
    def decide_on_one_who_waits(self, number: int, verb: str, first: str) -> None:
        """… perhaps after its token has gone bad."""
        waiting = [peer for peer in self.peers if peer.status is PENDING]
        peer = waiting[number % len(waiting)]
        assert peer.token is not None
        if first == "revoke":
            path = f"/bootstrap-tokens/{token_id(peer.token.value)}"
            assert self.run(lambda mesh: mesh.admin("DELETE", path)).status_code == 204
            peer.token.revoked = True
        elif first == "expire":
            self.clock.now = max(self.clock.now, peer.token.expires_at)
        self.resolve(self.peers.index(peer), verb)

    @rule(number=peers)
    def another_peer(self, number: int) -> None:
        """Members stay members; without newcomers the machine would soon know nobody else."""
        self.peers[number] = Peer(Identity.generate())

    @rule(number=peers, which=numbers, usable=st.sampled_from([True, True, False]), auto=st.booleans())
    def enroll(self, number: int, which: int, usable: bool, auto: bool) -> None:
        peer, token = self.peers[number], self.pick(which, usable)

        async def ask(mesh: Harness) -> tuple[BootstrapEnrollRequest, BootstrapEnrollResponse]:
            request = mesh.enroll_request(peer.identity, token.value)
            return request, await mesh.enroll(request)

        request, answer = self.run(ask, auto)
        assert answer.status is peer.expect(token, auto, self.clock.now), answer.error_message
        if answer.status is REJECTED:
            return
        peer.status, peer.token = answer.status, token
        if answer.status is APPROVED:
            self.granted(peer, answer.biscuit_token)
            peer.last_request = (request, answer)

    @precondition(lambda self: any(peer.status is REJECTED for peer in self.peers))
    @rule(number=numbers, auto=st.booleans())
    def ask_again_with_the_same_token(self, number: int, auto: bool) -> None:
        turned_down = [peer for peer in self.peers if peer.status is REJECTED]
        peer = turned_down[number % len(turned_down)]
        assert peer.token is not None
        value = peer.token.value
        assert self.run(lambda mesh: mesh.enroll(mesh.enroll_request(peer.identity, value)), auto).status is REJECTED

    def granted(self, peer: Peer, credential: bytes) -> None:
        assert peer.token is not None
        assert credential not in peer.credentials
        peer.credentials.append(credential)
        peer.role = peer.token.role
        peer.token.used += 1

    @rule(number=peers)
    def send_the_last_request_again(self, number: int) -> None:
        peer = self.peers[number]
        if peer.last_request is None or peer.credentials[-1] != peer.last_request[1].biscuit_token:
            return
        request, answer = peer.last_request
        if self.clock.now + 1 - request.challenge_unix_ms / 1000 <= 300:
            assert self.run(lambda mesh: mesh.enroll(request)).biscuit_token == answer.biscuit_token

    @rule(number=peers, verb=st.sampled_from(["approve", "reject"]))
    def resolve(self, number: int, verb: str) -> None:
        peer = self.peers[number]

        async def decide(mesh: Harness) -> int:
            listed = (await mesh.admin("GET", "/enrollments")).json()["enrollments"]
            ids = [entry["id"] for entry in listed if entry["peer_id"] == str(peer.identity.peer)]
            return (await mesh.admin("POST", f"/enrollments/{(ids or [999])[0]}/{verb}")).status_code

        code = self.run(decide)
        if peer.status is None or peer.token is None:
            assert code == 404
        elif peer.status is not PENDING:
            assert code == 409
        elif verb == "reject":
            assert code == 204
            peer.status = REJECTED
        elif not peer.token.admits(self.clock.now):
            assert code == 410
        else:
            assert code == 204
            peer.status = APPROVED
            self.granted(peer, self.polled(peer).biscuit_token)

    @rule(number=peers)
    def poll(self, number: int) -> None:
        peer = self.peers[number]
        if peer.status is None:
            assert self.run(lambda mesh: mesh.status(peer.identity)).status_code == 401
            return
        answer = self.polled(peer)
        assert answer.status is peer.status
        assert answer.biscuit_token == (peer.credentials[-1] if peer.status is APPROVED else b"")

    def polled(self, peer: Peer) -> BootstrapEnrollResponse:
        response = self.run(lambda mesh: mesh.status(peer.identity))
        assert response.status_code == 200
        return BootstrapEnrollResponse.parse(response.content)

    @rule(number=peers, age=st.integers(0, 2))
    def refresh(self, number: int, age: int) -> None:
        peer = self.peers[number]
        if len(peer.credentials) <= age:
            return
        presented = peer.credentials[-1 - age]
        response = self.run(
            lambda mesh: mesh.post("/refresh", mesh.refresh_request(peer.identity), **bearer(presented))
        )
        assert response.status_code == (401 if age else 200)
        if not age:
            peer.credentials.append(TokenRefreshResponse.parse(response.content).biscuit_token)

    @invariant()
    def usages_are_those_granted(self) -> None:
        stored = {token.id: token.usages for token in self.run(lambda mesh: mesh.plane.store.tokens())}
        assert stored == {token_id(token.value): token.used for token in self.tokens}
        assert all(token.used <= token.max_usages for token in self.tokens)


TestEnrollments = Enrollments.TestCase
TestEnrollments.settings = settings(
    max_examples=30, stateful_step_count=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
