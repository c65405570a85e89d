"""The audience of an event, which knows when the last of it has heard."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from benchmarks.audience import EVENT_BYTES, HEARING_TIMEOUT, STAMP, Audience, publisher_command


async def test_an_event_is_heard_when_the_last_has_it() -> None:
    sent: list[bytes] = []

    async def publish(event: bytes) -> None:
        sent.append(event)

    await publisher_command(publish)(7)
    (event,) = sent
    assert len(event) == EVENT_BYTES
    audience = Audience()
    audience.listeners = 2
    answers: list[float] = []

    async def wait() -> None:
        answers.append((await audience.heard(7))["took"])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        audience.hear(event)
        await wait_all_tasks_blocked()
        assert answers == []
        audience.hear(event)
    assert answers[0] >= 0


async def test_an_event_that_somebody_misses_is_an_error(autojump_clock: MockClock) -> None:
    audience = Audience()
    audience.listeners = 2
    audience.hear(STAMP.pack(1, 0.0))
    with pytest.raises(trio.TooSlowError):
        await audience.heard(1)
    assert trio.current_time() >= HEARING_TIMEOUT
