import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.errors import ServiceError
from agentmesh.protocols.http import Receive, Scope, Send
from agentmesh.services import running
from agentmesh.testing.cancellation import cancel_at_every_await


class App:
    """Notes what it is told, and answers a question as it was made to."""

    def __init__(self, **answers: str) -> None:
        self.heard: list[str] = []
        self.answers = {"startup": "complete", "shutdown": "complete", **answers}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            self.heard.append(f"http with {scope['state']}")
            scope["state"]["mine"] = True
            return
        scope["state"]["pool"] = "open"
        for expected in ("startup", "shutdown"):
            message = await receive()
            assert message == {"type": f"lifespan.{expected}"}
            self.heard.append(expected)
            if self.answers[expected] == "raise":
                raise ZeroDivisionError
            if self.answers[expected] == "hang":
                await trio.sleep_forever()
            await send({"type": f"lifespan.{expected}.{self.answers[expected]}", "message": "no disk"})
        await receive()


async def nothing() -> dict[str, str]:
    return {}


async def nowhere(message: object) -> None:
    pass


async def test_an_application_is_started_before_and_stopped_behind_the_block() -> None:
    app = App()
    async with running(app) as served:
        assert app.heard == ["startup"]
        await served({"type": "http"}, nothing, nowhere)
        await served({"type": "http"}, nothing, nowhere)
    # the state of one request is not another's
    assert app.heard == ["startup", *["http with {'pool': 'open'}"] * 2, "shutdown"]


async def test_an_application_without_a_lifespan_is_served_all_the_same() -> None:
    async def plain(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"

    async def deaf(scope: Scope, receive: Receive, send: Send) -> None:
        pass

    for app in (plain, deaf):
        async with running(app) as served:
            await served({"type": "http"}, nothing, nowhere)


@pytest.mark.parametrize("question", ["startup", "shutdown"])
async def test_an_application_that_says_it_failed(question: str) -> None:
    with pytest.raises(ServiceError, match=f"lifespan.{question}.failed: no disk"):
        async with running(App(**{question: "failed"})):
            assert question == "shutdown"


@pytest.mark.parametrize("question", ["startup", "shutdown"])
async def test_an_application_that_does_not_answer(question: str, autojump_clock: MockClock) -> None:
    with pytest.raises(ServiceError, match=f"no answer to lifespan.{question}"):
        async with running(App(**{question: "hang"})):
            assert question == "shutdown"


async def test_an_application_that_answers_something_else() -> None:
    app = App(startup="nonsense")
    async with running(app):
        pass
    assert app.heard == ["startup"]


async def test_an_application_that_dies_takes_the_block_down() -> None:
    die = trio.Event()

    async def dying(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await die.wait()
        raise ZeroDivisionError

    with pytest.raises(ExceptionGroup) as caught:
        async with running(dying):
            die.set()
            await trio.sleep_forever()
    assert caught.group_contains(ZeroDivisionError)


async def test_the_block_raises_its_own_errors_bare() -> None:
    with pytest.raises(KeyError):
        async with running(App()):
            raise KeyError


async def test_cancelling_at_every_await_leaves_nothing() -> None:
    async def once() -> None:
        async with running(App()):
            await wait_all_tasks_blocked()

    assert await cancel_at_every_await(once) > 4
