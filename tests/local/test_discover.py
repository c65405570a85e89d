"""Who serves what, as a program beside a node is told."""

import json
from pathlib import Path

import trio

from tests.local.backend import Beside, open_beside
from tests.local.test_proxy import Backend

PATH = "/mesh/service/discover"


async def wait_announced(beside: Beside) -> None:
    with trio.fail_after(20):
        while not await beside.caller.find_providers("http", "x"):  # noqa: ASYNC110 - only asking tells
            await trio.sleep(0.1)


def entry(beside: Beside) -> dict[str, str]:
    """What is told of the one service there is."""
    return {
        "peer_id": str(beside.provider.peer),
        "type": "http",
        "name": "x",
        "local_proxy_url": f"{beside.prefix}/",
    }


async def test_service_discovery(tmp_path: Path) -> None:
    async with open_beside(tmp_path, Backend().serve) as beside, beside.client() as client:
        await wait_announced(beside)
        found = entry(beside)
        for query in ("type=http", "type=http&name=x", "type=http&limit=1&timeout=5"):
            assert (await client.get(f"{PATH}?{query}")).json() == [found]
        assert (await client.get(f"{PATH}?type=http&offset=1")).json() == []
        assert (await client.get(f"{PATH}?type=mcp")).json() == []
        assert (await client.get(found["local_proxy_url"])).text == "hi"
        for query in ("", "type=http&timeout=soon", "type=http&timeout=nan", "type=http&limit=0", "type=other"):
            assert (await client.get(f"{PATH}?{query}")).status_code == 400


async def test_service_discovery_streaming(tmp_path: Path) -> None:
    async with open_beside(tmp_path, Backend().serve) as beside, beside.client() as client:
        await wait_announced(beside)
        answer = await client.get(f"{PATH}?type=http&stream=1")
        assert answer.headers["content-type"] == "text/event-stream"
        assert answer.text == f'data: {json.dumps(entry(beside))}\n\nevent: done\ndata: {{"found": 1}}\n\n'
        assert (await client.get(f"{PATH}?type=http&stream=1&timeout=soon")).status_code == 400


async def test_service_discovery_by_labels(tmp_path: Path) -> None:
    async with open_beside(tmp_path, Backend().serve) as beside, beside.client() as client:
        await wait_announced(beside)
        found = entry(beside)
        for labels, expected in (
            ("any_label=site=b,site=a", [found]),
            ("all_labels=site=a,zone=x", [found]),
            ("any_label=site=a&all_labels=zone=x", [found]),
            ("any_label=site=b,zone=y", []),
            ("all_labels=site=a,zone=y", []),
            ("any_label=site=a&all_labels=zone=y", []),
        ):
            for name in ("", "&name=x"):
                assert (await client.get(f"{PATH}?type=http{name}&{labels}")).json() == expected
        answer = await client.get(f"{PATH}?type=http&stream=1&any_label=site=b")
        assert answer.text == 'event: done\ndata: {"found": 0}\n\n'
        for malformed in ("any_label=", "any_label=site", "all_labels=site=a,,zone=x"):
            assert (await client.get(f"{PATH}?type=http&{malformed}")).status_code == 400
