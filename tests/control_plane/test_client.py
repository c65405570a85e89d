"""The client on the virtual clock against answers made to order, and against the app for what the two agree on."""

import base64
import gzip
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from email.utils import formatdate
from pathlib import Path
from random import Random

import betterproto2
import httpx
import pytest
import trio
from trio.testing import MockClock

from agentmesh.control_plane import exchange
from agentmesh.control_plane.backoff import Backoff
from agentmesh.control_plane.client import ControlPlaneClient, RouterLoad, open_client
from agentmesh.control_plane.errors import (
    ControlPlaneUnavailableError,
    EnrollmentRejectedError,
    RequestRefusedError,
    UnauthorizedError,
)
from agentmesh.errors import LimitExceededError, RemoteProtocolError
from agentmesh.identity import Identity
from agentmesh.node.selection import UNKNOWN_LOAD, load_of
from agentmesh.types import Address, PeerId
from agentmesh.wire.codec import MAX_FIELDS
from agentmesh.wire.messages.mesh.v1 import (
    BootstrapEnrollRequest,
    BootstrapEnrollResponse,
    ControlPlaneInfoResponse,
    EnrollmentStatus,
    RouterInfo,
    TokenRefreshRequest,
    TokenRefreshResponse,
)
from tests.control_plane.plane import Clock, open_harness

NOW = 1_800_000_000.0
APPROVED = BootstrapEnrollResponse(
    status=EnrollmentStatus.APPROVED, biscuit_token=b"credential", expire_time=datetime.fromtimestamp(NOW + 60, UTC)
)
PENDING = BootstrapEnrollResponse(status=EnrollmentStatus.PENDING, poll_interval_seconds=30)
STALE = "stale or invalid challenge timestamp\n"

Answer = httpx.Response | Exception


class Server:
    """Answers each request with the next of a list, the last one for ever, and keeps the requests."""

    def __init__(self, *answers: Answer | betterproto2.Message) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []
        self.times: list[float] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        self.times.append(trio.current_time())
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(200, content=bytes(answer)) if isinstance(answer, betterproto2.Message) else answer

    def client(
        self, *, clock: Callable[[], float] = lambda: NOW, backoff: Backoff | None = None
    ) -> AbstractAsyncContextManager[ControlPlaneClient]:
        transport = httpx.MockTransport(self)
        return open_client(
            "http://cp", Identity.generate(), wall_clock=clock, rng=Random(1), backoff=backoff, transport=transport
        )


def refusal(status: int, text: str = "no", **headers: str) -> httpx.Response:
    return httpx.Response(status, text=text, headers={name.replace("_", "-"): value for name, value in headers.items()})


def sent_enrollment(request: httpx.Request) -> BootstrapEnrollRequest:
    return BootstrapEnrollRequest.parse(request.content)


@pytest.mark.parametrize(
    "trouble",
    [
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("slow"),
        httpx.RemoteProtocolError("cut short"),
        refusal(500),
        refusal(503),
        refusal(429, retry_after="2"),
    ],
    ids=str,
)
async def test_what_may_pass_is_tried_again_with_the_same_request(autojump_clock: MockClock, trouble: Answer) -> None:
    server = Server(trouble, trouble, APPROVED)
    async with server.client() as client:
        assert (await client.enroll("token")).credential == b"credential"
    assert len({request.content for request in server.requests}) == 1
    assert len(server.requests) == 3


async def test_trying_ends_with_the_budget_of_time(autojump_clock: MockClock) -> None:
    server = Server(refusal(429, "too many", retry_after="2"))
    async with server.client() as client:
        began = trio.current_time()
        with pytest.raises(ControlPlaneUnavailableError, match="too many") as caught:
            await client.enroll("token")
    assert caught.value.status == 429
    assert 150 < trio.current_time() - began <= 180
    assert all(later - earlier >= 2 for earlier, later in zip(server.times, server.times[1:], strict=False))


async def test_no_answer_at_all_names_the_cause(autojump_clock: MockClock) -> None:
    async with Server(httpx.ConnectError("nobody there")).client() as client:
        with pytest.raises(ControlPlaneUnavailableError, match="nobody there") as caught:
            await client.info()
    assert caught.value.status is None
    assert isinstance(caught.value.__cause__, httpx.ConnectError)


async def test_an_answer_that_trickles_is_given_up(autojump_clock: MockClock) -> None:
    async def trickle() -> AsyncIterator[bytes]:
        while True:
            yield b""
            await trio.sleep(20)

    server = Server(httpx.Response(200, content=trickle()))
    async with server.client(backoff=Backoff(budget=0.0)) as client:
        with pytest.raises(ControlPlaneUnavailableError, match="TooSlowError"):
            await client.info()


@pytest.mark.parametrize("status", [400, 403, 404, 409, 410, 302])
async def test_a_refusal_is_final(status: int) -> None:
    server = Server(refusal(status, "because\nof this\x00"))
    async with server.client() as client:
        with pytest.raises(RequestRefusedError, match="because of this") as caught:
            await client.enroll("token")
    assert caught.value.status == status
    assert not isinstance(caught.value, UnauthorizedError)
    assert len(server.requests) == 1


async def test_unauthorized_is_final_and_an_error_of_its_own() -> None:
    server = Server(refusal(401, "who are you", date=formatdate(NOW + 9000, usegmt=True)))
    async with server.client() as client:
        with pytest.raises(UnauthorizedError, match="who are you"):
            await client.renew_lease(b"credential", [])
    assert len(server.requests) == 1


async def test_a_clock_that_is_off_is_corrected_once() -> None:
    server = Server(refusal(401, STALE, date=formatdate(NOW + 9000, usegmt=True)), APPROVED, APPROVED)
    async with server.client() as client:
        await client.enroll("token")
        await client.enroll("token")
    times = [sent_enrollment(request).challenge_unix_ms / 1000 - NOW for request in server.requests]
    assert times == pytest.approx([0, 9000, 9000], abs=0.01)
    assert len(set(times)) == 3  # no two are taken for the same request sent again


async def test_a_clock_that_cannot_be_corrected_is_an_error() -> None:
    server = Server(refusal(401, STALE, date=formatdate(NOW, usegmt=True)))
    async with server.client() as client:
        with pytest.raises(UnauthorizedError, match="stale or invalid"):
            await client.enroll("token")
    assert len(server.requests) == 2


@pytest.mark.parametrize("date", ["", "yesterday"])
async def test_without_a_date_a_clock_is_not_corrected(date: str) -> None:
    server = Server(refusal(401, STALE, date=date))
    async with server.client() as client:
        with pytest.raises(UnauthorizedError):
            await client.enroll("token")
    assert len(server.requests) == 1


async def test_a_pending_enrollment_is_polled(autojump_clock: MockClock) -> None:
    server = Server(PENDING, PENDING, refusal(503), APPROVED)
    async with server.client() as client:
        began = trio.current_time()
        await client.enroll("token")
    assert [request.url.path for request in server.requests] == ["/enroll"] + ["/enroll/status"] * 3
    assert server.times[1] - began == 30
    assert server.times[2] - server.times[1] == 30
    assert server.requests[1].url.params["peer_id"].startswith("12D3")


@pytest.mark.parametrize(("asked", "waited"), [(2.0, 2.0), (0.001, 1.0), (None, 30.0)])
async def test_how_often_to_poll(autojump_clock: MockClock, asked: float | None, waited: float) -> None:
    server = Server(PENDING, APPROVED)
    async with server.client() as client:
        await client.enroll("token", poll_interval=asked)
    assert server.times[1] - server.times[0] == waited


async def test_a_rejection_says_why_and_not_which_token() -> None:
    reason = BootstrapEnrollResponse(status=EnrollmentStatus.REJECTED, error_message="the bootstrap token has expired")
    async with Server(reason).client() as client:
        with pytest.raises(EnrollmentRejectedError, match="has expired") as caught:
            await client.enroll("secret-token")
    assert "secret-token" not in repr(caught.value)


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200, content=b"\xff<html>"),
        BootstrapEnrollResponse(status=EnrollmentStatus.APPROVED, biscuit_token=b"x"),
        BootstrapEnrollResponse(),
        httpx.Response(200, content=gzip.compress(b""), headers={"Content-Encoding": "gzip"}),
    ],
    ids=["not a message", "no expiry", "no status", "compressed"],
)
async def test_what_is_no_answer_is_a_protocol_error(answer: httpx.Response | betterproto2.Message) -> None:
    server = Server(answer)
    async with server.client() as client:
        with pytest.raises(RemoteProtocolError):
            await client.enroll("token")


async def test_an_answer_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "MAX_ANSWER_BYTES", 10)
    async with Server(httpx.Response(200, content=bytes(11))).client() as client:
        with pytest.raises(LimitExceededError):
            await client.info()


async def test_a_refresh_whose_answer_was_lost_is_made_good(tmp_path: Path) -> None:
    """The control plane issued a new credential that never reached us; the old one is not redeemed any more."""
    async with open_harness(tmp_path) as mesh, mesh.client() as client:
        old = await client.enroll(await mesh.plane.create_token("node"))
        lost = await client.refresh(old.credential)
        found = await client.refresh(old.credential)
        assert found.credential == lost.credential
        newer = await client.refresh(found.credential)
        assert newer.credential != found.credential


async def test_an_expired_credential_is_not_made_good(tmp_path: Path) -> None:
    async with open_harness(tmp_path, biscuit_ttl=100) as mesh, mesh.client() as client:
        old = await client.enroll(await mesh.plane.create_token("node"))
        mesh.clock.now += 101
        with pytest.raises(UnauthorizedError, match="expired"):
            await client.refresh(old.credential)


async def test_a_credential_that_expired_unseen_is_of_no_use() -> None:
    expired = BootstrapEnrollResponse(
        status=EnrollmentStatus.APPROVED, biscuit_token=b"unseen", expire_time=datetime.fromtimestamp(NOW, UTC)
    )
    async with Server(refusal(401, "not the last one"), expired).client() as client:
        with pytest.raises(UnauthorizedError, match="not the last one"):
            await client.refresh(b"old")


async def test_a_password_in_the_url_is_in_no_error() -> None:
    transport = httpx.MockTransport(Server(httpx.ConnectError("refused")))
    settings = {"backoff": Backoff(budget=0.0), "transport": transport}
    async with open_client("http://user:secret@cp:80/", Identity.generate(), **settings) as client:  # type: ignore[arg-type]
        with pytest.raises(ControlPlaneUnavailableError, match="at http://cp") as caught:
            await client.info()
    assert "secret" not in str(caught.value)


async def test_a_stranger_is_told_the_first_refusal(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as mesh, mesh.client() as client:
        with pytest.raises(UnauthorizedError, match="does not admit"):
            await client.refresh(b"nonsense")


async def test_requests_bear_the_credential_as_the_server_reads_it() -> None:
    answer = TokenRefreshResponse(biscuit_token=b"new", expire_time=datetime.fromtimestamp(NOW, UTC))
    server = Server(answer)
    async with server.client() as client:
        assert (await client.refresh(b"\xfb\xff")).credential == b"new"
    (request,) = server.requests
    assert request.headers["authorization"] == f"Bearer {base64.b64encode(bytes((0xFB, 0xFF))).decode()}"
    assert TokenRefreshRequest.parse(request.content).peer_id


async def test_a_skewed_client_works_with_the_app(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as mesh, mesh.client(clock=Clock(1000.0)) as client:
        issued = await client.enroll(await mesh.plane.create_token("router"))
        assert issued.expires_at > mesh.clock.now
        await client.renew_lease(issued.credential, [], load=RouterLoad(connections=5, connection_limit=9), ttl=50.0)
        assert (await client.keys()) == mesh.plane.authority.trusted


async def test_info_names_who_is_banned(tmp_path: Path) -> None:
    peers = [Identity.generate().peer for _ in range(2)]
    async with open_harness(tmp_path) as mesh, mesh.client() as client:
        for peer in peers:
            await mesh.plane.store.access.ban(peer, mesh.clock.now)
        assert (await client.info()).banned == frozenset(peers)
        await mesh.plane.store.access.unban(peers[0])
        assert (await client.info()).banned == {peers[1]}


async def test_info_says_how_many_routers_hold_a_record(tmp_path: Path) -> None:
    async with open_harness(tmp_path, dht_replication=5) as mesh, mesh.client() as client:
        assert (await client.info()).directory_replication == 5
    async with Server(ControlPlaneInfoResponse()).client() as client:
        assert (await client.info()).directory_replication is None


async def test_a_long_list_of_bans_is_read_whole() -> None:
    banned = [str(PeerId.from_ed25519(number.to_bytes(32))) for number in range(MAX_FIELDS + 1)]
    async with Server(ControlPlaneInfoResponse(banned_peer_ids=banned)).client() as client:
        assert len((await client.info()).banned) == MAX_FIELDS + 1


async def test_info_is_made_usable() -> None:
    one, two, three = (Identity.generate().peer for _ in range(3))
    answer = ControlPlaneInfoResponse(
        routers=[
            RouterInfo(peer_id=str(one), addresses=["/ip4/1.1.1.1/tcp/1", f"/ip4/1.1.1.1/tcp/1/p2p/{two}", "?"]),
            RouterInfo(addresses=["/ip4/2.2.2.2/tcp/2", f"/ip4/2.2.2.2/tcp/3/p2p/{two.dns_label}"], connections=3),
            RouterInfo(peer_id=str(three), addresses=[f"/ip4/1.1.1.1/tcp/1/p2p/{one}"]),
            RouterInfo(peer_id="nonsense", addresses=["/ip4/1.1.1.1/tcp/1"]),
            RouterInfo(addresses=["/ip4/1.1.1.1/tcp/1"]),
            RouterInfo(peer_id=str(three), addresses=[]),
        ]
    )
    async with Server(answer).client() as client:
        routers = (await client.info()).routers
    assert [(record.peer, record.addresses) for record in routers] == [
        (one, (Address.parse(f"/ip4/1.1.1.1/tcp/1/p2p/{one}"),)),
        (two, (Address.parse(f"/ip4/2.2.2.2/tcp/2/p2p/{two}"), Address.parse(f"/ip4/2.2.2.2/tcp/3/p2p/{two}"))),
    ]
    assert routers[1].connections == 3


async def test_router_peers_groups_addresses_by_peer() -> None:
    """Of a control plane that lists addresses and no routers."""
    one, two = (Identity.generate().peer for _ in range(2))
    first, second, other = (f"/ip4/1.1.1.{n}/tcp/1/p2p/{peer}" for n, peer in enumerate((one, one, two)))
    answer = ControlPlaneInfoResponse(router_addresses=[first, other, "/ip4/1.1.1.1/tcp/1", "?", second, first])
    async with Server(answer).client() as client:
        routers = (await client.info()).routers
    assert [(record.peer, record.addresses) for record in routers] == [
        (one, (Address.parse(first), Address.parse(second))),
        (two, (Address.parse(other),)),
    ]
    assert {load_of(record) for record in routers} == {UNKNOWN_LOAD}


def test_members_need_nothing_of_the_servers_side() -> None:
    program = "import sys, agentmesh.control_plane.client; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert "httpx" in loaded
    assert not {"sqlalchemy", "starlette", "hypercorn", "prometheus_client"} & set(loaded)


@pytest.mark.parametrize("url", ["", "nonsense", "ftp://x", "http://", "http://x:port", "127.0.0.1:8080"])
async def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="URL"):
        async with open_client(url, Identity.generate()):
            pass
