"""What is remembered of who serves what: bounded, and shared by whoever asks at once."""

from collections.abc import Sequence

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.errors import DialError
from agentmesh.services import Providers, ServiceKey
from agentmesh.services.labels import MAX_REQUIRED, required_labels, suffices
from agentmesh.services.providers import FOUND_TTL, MAX_FAILED, MAX_SERVICES
from agentmesh.types import PeerId

PEERS = [PeerId.from_ed25519(number.to_bytes(32, "big")) for number in range(3)]
SERVICE = ServiceKey("mcp", "x")


async def nobody(service: ServiceKey) -> Sequence[PeerId]:
    await trio.lowlevel.checkpoint()
    return ()


async def test_it_is_bounded() -> None:
    providers = Providers(nobody)
    for number in range(MAX_SERVICES + 5):
        await providers.candidates(ServiceKey("mcp", str(number)))
    assert len(providers) == MAX_SERVICES
    for number in range(MAX_FAILED + 5):
        providers.failed(PeerId.from_ed25519(number.to_bytes(32, "big")), SERVICE)
    assert await providers.candidates(SERVICE) == []


async def test_a_look_that_is_cancelled_leaves_the_others_to_look(autojump_clock: MockClock) -> None:
    looks = list[float]()

    async def find(service: ServiceKey) -> Sequence[PeerId]:
        looks.append(trio.current_time())
        await trio.sleep(1)
        return PEERS

    providers = Providers(find)
    with trio.move_on_after(0.5):
        await providers.candidates(SERVICE)
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(providers.candidates, SERVICE)
    assert looks == [0.0, 0.5]
    await trio.sleep(FOUND_TTL)
    await providers.candidates(SERVICE)
    assert len(looks) == 3


async def test_a_failure_is_shared_by_those_who_wait_and_by_nobody_else() -> None:
    looks, go_on = list[ServiceKey](), trio.Event()

    async def find(service: ServiceKey) -> Sequence[PeerId]:
        looks.append(service)
        await go_on.wait()
        raise DialError("nobody answers")

    providers = Providers(find)

    async def look() -> None:
        with pytest.raises(DialError, match="nobody answers"):
            await providers.candidates(SERVICE)

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(look)
        await wait_all_tasks_blocked()
        go_on.set()
    assert len(looks) == 1
    await look()
    assert len(looks) == 2


# ── labels ──


@pytest.mark.parametrize(
    ("has", "required", "floor", "expected"),
    [
        ({}, (), {}, True),
        ({"site": "a"}, (("site", "a"), ("site", "b")), {}, True),
        ({"site": "c"}, (("site", "a"), ("site", "b")), {}, False),
        ({"site": "a", "zone": "x"}, (), {"site": "a", "zone": "x"}, True),
        ({"site": "a"}, (), {"site": "a", "zone": "x"}, False),
        ({"site": "a"}, (("site", "a"),), {"zone": "x"}, False),
        ({"zone": "x"}, (("site", "a"),), {"zone": "x"}, False),
    ],
)
def test_one_of_the_required_and_all_of_the_floor(
    has: dict[str, str], required: tuple[tuple[str, str], ...], floor: dict[str, str], expected: bool
) -> None:
    assert suffices(has, required, floor.items()) is expected


def test_what_is_required_is_read_from_headers() -> None:
    header = b"X-Mesh-Required-Labels"
    assert required_labels([(b"a", b"b")]) == ()
    assert required_labels([(header, b"site=a,zone=b=c"), (header.lower(), b" x=")]) == (
        ("site", "a"),
        ("zone", "b=c"),
        ("x", ""),
    )
    for malformed in (b"", b"site", b"=a", b"a=b,,c=d"):
        with pytest.raises(ValueError, match="key=value"):
            required_labels([(header, malformed)])
    with pytest.raises(ValueError, match="more than"):
        required_labels([(header, b",".join([b"a=b"] * (MAX_REQUIRED + 1)))])
