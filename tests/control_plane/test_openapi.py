"""The interface is what /openapi.json says: schemathesis makes requests of it, good and bad, and reads every answer."""

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import schemathesis
import trio
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import checks as common_checks
from schemathesis import generation
from schemathesis.specs.openapi import checks as openapi_checks

from tests.control_plane.plane import ADMIN_TOKEN, Harness, open_harness

EXAMPLES = 8  # of each operation, good and bad each

kit: Any = schemathesis  # its generics are open
common: Any = common_checks
of_document: Any = openapi_checks
CHECKS = [
    common.not_a_server_error,
    of_document.status_code_conformance,
    of_document.content_type_conformance,
    of_document.response_schema_conformance,
]
GOOD, BAD = generation.GenerationMode.POSITIVE, generation.GenerationMode.NEGATIVE


def as_bytes(_: Any, value: Any) -> Any:
    return value if isinstance(value, bytes) else str(value).encode(errors="replace")


kit.serializer("application/x-protobuf")(as_bytes)


def explore(mesh: Harness, operation: Any, mode: Any, answered: Counter[int]) -> None:
    """Send requests of one operation, check and count each answer. In a thread, as Hypothesis waits for nobody."""

    async def send(wanted: dict[str, Any]) -> httpx.Response:
        body = {"json": wanted["json"]} if "json" in wanted else {"content": wanted.get("data")}
        headers = {name: value.encode() for name, value in wanted["headers"].items()}
        headers["Authorization"] = f"Bearer {ADMIN_TOKEN}".encode()
        arguments: dict[str, Any] = {"params": wanted.get("params"), "headers": headers, **body}
        return await mesh.http.request(wanted["method"], wanted["url"], **arguments)

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def run(case: Any) -> None:
        response = trio.from_thread.run(send, case.as_transport_kwargs(base_url="http://control-plane"))
        answered[response.status_code] += 1
        case.validate_response(response, checks=CHECKS)

    run()


async def test_every_answer_is_described(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as mesh:
        document: dict[str, Any] = (await mesh.http.get("/openapi.json")).json()
        answered = Counter[int]()
        for result in kit.openapi.from_dict(document).get_all_operations():
            operation = result.ok()
            written = document["paths"][operation.path][operation.method]
            takes = "requestBody" in written or "parameters" in written
            for mode in (GOOD, BAD) if takes else (GOOD,):
                await trio.to_thread.run_sync(partial(explore, mesh, operation, mode, answered))
    assert {200, 201, 400, 401, 404} <= set(answered), answered
