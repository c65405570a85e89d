"""What etcd's answers mean for whoever asked, and which of its members is asked."""

from collections.abc import AsyncGenerator, Sequence

import httpx
import pytest
import trio
from trio.testing import MockClock

from agentmesh.pool.registry import Registered, RegistryRefusedError, RegistryUnavailableError
from agentmesh.pool.registry.etcd_client import ANSWER_TIMEOUT, EtcdClient, Json, LeaseGoneError, get, put
from agentmesh.pool.registry.opening import open_registry
from tests.pool.registry.test_contract import TTL, connection
from tests.servers.etcd import run_etcd


def answering(*answers: httpx.Response | Exception) -> EtcdClient:
    """A client of an etcd that gives these answers, in turn."""
    rest = iter(answers)

    def handle(_: httpx.Request) -> httpx.Response:
        answer = next(rest)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return EtcdClient(httpx.AsyncClient(transport=httpx.MockTransport(handle)), ["http://a", "http://b"])


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (httpx.Response(503, json={"error": "etcdserver: no leader", "code": 14}), RegistryUnavailableError),
        (
            httpx.Response(500, json={"error": "etcdserver: mvcc: database space exceeded", "code": 8}),
            RegistryUnavailableError,
        ),
        (httpx.Response(404, json={"error": "etcdserver: requested lease not found", "code": 5}), LeaseGoneError),
        (httpx.Response(403, json={"error": "etcdserver: permission denied", "code": 7}), RegistryRefusedError),
        (httpx.Response(400, json={"error": "etcdserver: too many operations", "code": 3}), RegistryRefusedError),
        (httpx.Response(404, text="404 page not found"), RegistryRefusedError),
        (httpx.Response(200, json=[1]), RegistryRefusedError),
        (httpx.Response(502, text="<html>"), RegistryUnavailableError),
        (httpx.ReadTimeout("late"), RegistryUnavailableError),
        (httpx.RemoteProtocolError("cut"), RegistryUnavailableError),
    ],
)
async def test_each_answer_says_whether_to_try_again(
    answer: httpx.Response | Exception, error: type[Exception]
) -> None:
    with pytest.raises(error):
        await answering(answer).read(get("key"))


async def test_a_member_that_cannot_be_reached_is_asked_last_from_then_on() -> None:
    asked: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.host)
        if request.url.host == "a":
            raise httpx.ConnectError("refused")
        return httpx.Response(200, json={"succeeded": True})

    client = EtcdClient(httpx.AsyncClient(transport=httpx.MockTransport(handle)), ["http://a", "http://b"])
    for _ in range(2):
        assert await client.write_if([])
    assert asked == ["a", "b", "b"]


async def test_when_no_member_can_be_reached_it_is_to_be_tried_again() -> None:
    with pytest.raises(RegistryUnavailableError, match="no member"):
        await answering(httpx.ConnectError("refused"), httpx.ConnectTimeout("late")).read(get("key"))


async def test_an_answer_is_not_waited_for_for_ever(autojump_clock: MockClock) -> None:
    async def handle(_: httpx.Request) -> httpx.Response:
        await trio.sleep_forever()
        raise AssertionError

    client = EtcdClient(httpx.AsyncClient(transport=httpx.MockTransport(handle)), ["http://a"])
    started = trio.current_time()
    with pytest.raises(RegistryUnavailableError):
        await client.read(get("key"))
    assert trio.current_time() - started == ANSWER_TIMEOUT


async def test_a_lease_that_is_gone_is_not_kept_alive() -> None:
    with pytest.raises(LeaseGoneError):
        await answering(httpx.Response(200, json={"result": {"ID": "7"}})).keep_alive(7)


@pytest.fixture
async def guarded() -> AsyncGenerator[str]:
    """The members of an etcd that wants to know who asks: root, whose password is "secret", may do everything."""
    with run_etcd() as etcd:
        async with httpx.AsyncClient(trust_env=False, base_url=f"http://127.0.0.1:{etcd.port}") as http:
            for path, body in (
                ("user/add", {"name": "root", "password": "secret"}),
                ("role/add", {"name": "root"}),
                ("user/grant", {"user": "root", "role": "root"}),
                ("enable", {}),
            ):
                (await http.post(f"/v3/auth/{path}", json=body)).raise_for_status()
        yield f"127.0.0.1:{etcd.port}"


async def test_an_etcd_that_wants_to_know_who_asks_is_told(guarded: str) -> None:
    async with open_registry(f"etcd://root:secret@{guarded}") as registry:
        assert isinstance(await registry.register_connection(connection(), TTL), Registered)
        assert len(await registry.list_active_by_agent("agent")) == 1
    for dsn in (f"etcd://{guarded}", f"etcd://root:wrong-secret@{guarded}"):
        with pytest.raises(RegistryRefusedError) as caught:
            async with open_registry(dsn) as registry:
                raise AssertionError("it was let in")
        assert "wrong-secret" not in str(caught.value)


async def test_a_token_that_has_run_out_is_followed_by_another(guarded: str) -> None:
    async with httpx.AsyncClient(trust_env=False) as http:
        client = Forgetful(http, [f"http://{guarded}"], ("root", "secret"))
        for _ in range(2):
            assert await client.write_if([], put("/key", b"value"))
            client.forget()
        assert client.asked == ["", "right", "wrong", "", "right"]


class Forgetful(EtcdClient):
    """One whose token etcd does not know any more, after `forget`."""

    def __init__(self, http: httpx.AsyncClient, endpoints: Sequence[str], user: tuple[str, str]) -> None:
        super().__init__(http, endpoints, user)
        self.asked: list[str] = []

    def forget(self) -> None:
        self._token = "wrong"

    async def _send(self, path: str, body: Json, token: str) -> Json:
        self.asked.append(token if token in ("", "wrong") else "right")
        return await super()._send(path, body, token)
