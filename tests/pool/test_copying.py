import trio
from trio.testing import MockClock, lockstep_stream_pair, memory_stream_pair

from agentmesh.pool.copying import Copied, copy_both_ways


async def test_each_way_ends_by_itself(autojump_clock: MockClock) -> None:
    """A request that has ended does not end its answer, however long that takes."""
    client, near = memory_stream_pair()
    far, server = memory_stream_pair()
    results: list[Copied] = []

    async def copy() -> None:
        results.append(await copy_both_ways(near, far))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(copy)
        await client.send_all(b"request")
        await client.send_eof()
        received = b""
        while data := await server.receive_some():
            received += data
        assert received == b"request"
        await trio.sleep(3600)
        await server.send_all(b"answer")
        await server.send_eof()
        assert await client.receive_some() == b"answer"
        assert await client.receive_some() == b""
    assert results == [Copied(forth=7, back=6, is_whole=True)]


async def test_a_stream_that_breaks_is_no_success(autojump_clock: MockClock) -> None:
    client, near = lockstep_stream_pair()
    far, server = lockstep_stream_pair()
    results: list[Copied] = []

    async def copy() -> None:
        results.append(await copy_both_ways(near, far))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(copy)
        await server.send_all(b"a part")
        await client.receive_some(3)
        await trio.aclose_forcefully(client)
    [copied] = results
    assert not copied.is_whole
