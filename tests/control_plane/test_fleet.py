"""A fleet that starts at once through the limiter of enrollment: with a budget of time everybody gets in."""

import logging
from collections import Counter
from datetime import UTC, datetime
from random import Random

import httpx
import pytest
import trio
from trio.testing import MockClock

from agentmesh.control_plane.backoff import Backoff
from agentmesh.control_plane.client import ControlPlaneClient
from agentmesh.control_plane.config import Config
from agentmesh.control_plane.errors import ControlPlaneUnavailableError
from agentmesh.control_plane.exchange import Exchange
from agentmesh.control_plane.member_api import ENROLL_RETRY_AFTER
from agentmesh.control_plane.ratelimit import TokenBucket
from agentmesh.identity import Identity
from agentmesh.wire.messages.mesh.v1 import BootstrapEnrollResponse, EnrollmentStatus
from tests.control_plane.plane import Clock

MEMBERS = 1500
OLD_ANSWERS = 8  # after which members used to give up
APPROVED = BootstrapEnrollResponse(
    status=EnrollmentStatus.APPROVED, biscuit_token=b"c", expire_time=datetime.fromtimestamp(2e9, UTC)
)


class Limited:
    """A control plane's limiter with its settings as they are, and an answer for whoever passes it."""

    def __init__(self) -> None:
        self._bucket = TokenBucket(Config().enroll_rate, Config().enroll_burst)

    def __call__(self, _: httpx.Request) -> httpx.Response:
        if self._bucket.take(trio.current_time()):
            return httpx.Response(200, content=bytes(APPROVED))
        return httpx.Response(429, text="too many", headers={"Retry-After": str(ENROLL_RETRY_AFTER)})


async def test_a_fleet_of_1500_gets_in(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    for chatty in ("agentmesh", "httpx"):
        caplog.set_level(logging.ERROR, chatty)
    ended, began = Counter[str](), trio.current_time()
    identity, rng = Identity.generate(), Random(1)

    async def member(http: httpx.AsyncClient) -> None:
        client = ControlPlaneClient(identity, Exchange(http, Clock(), rng, Backoff()))
        try:
            await client.enroll("token")
        except ControlPlaneUnavailableError:
            ended["given up"] += 1
        else:
            ended["in"] += 1

    transport = httpx.MockTransport(Limited())
    async with httpx.AsyncClient(transport=transport, base_url="http://cp") as http, trio.open_nursery() as nursery:
        for _ in range(MEMBERS):
            nursery.start_soon(member, http)
    assert ended == {"in": MEMBERS}
    assert trio.current_time() - began < Backoff().budget


async def test_with_eight_answers_a_third_of_it_would_not(autojump_clock: MockClock) -> None:
    """What the budget of time took the place of: so many answers, and to each the wait that it asks for."""
    ended, limited = Counter[str](), Limited()

    async def member() -> None:
        for _ in range(OLD_ANSWERS):
            answer = limited(httpx.Request("POST", "http://cp/enroll"))
            if answer.status_code == 200:
                ended["in"] += 1
                return
            await trio.sleep(float(answer.headers["retry-after"]))
        ended["given up"] += 1

    async with trio.open_nursery() as nursery:
        for _ in range(MEMBERS):
            nursery.start_soon(member)
    assert ended["given up"] >= MEMBERS / 3
