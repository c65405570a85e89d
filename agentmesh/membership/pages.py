"""What an operator sees of a router or a node: `/metrics`, `/healthz`, `/readyz` and pages for debugging, over HTTP."""

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import attrs
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from agentmesh.control_plane.bind_address import parse_bind_address
from agentmesh.control_plane.serving import serve_http
from agentmesh.runtime.durations import Durations

# Gives what JSON can hold or an answer of its own, or awaits it; a ValueError is the asker's fault.
Page = Callable[[Request], Any]
Value = float | Mapping[Any, float]


@attrs.frozen
class Timing:
    """A histogram as it is now.

    Attributes:
        name, text, labels: as of a Family.
        value: by the values of its labels.
    """

    name: str
    text: str
    value: Mapping[Any, Durations]
    labels: Sequence[str]


@attrs.frozen
class Family:
    """One metric as it is now.

    Attributes:
        name: without the prefix, and without the `_total` of counters.
        text: what it tells.
        labels: the names of its labels; the keys of `value` are their values, each a tuple or, of one label, bare.
        counts: whether it only goes up.
    """

    name: str
    text: str
    value: Value
    labels: Sequence[str] = ()
    counts: bool = False


class Gauges(Collector):
    """A program's metrics, read when they are asked for.

    Args:
        prefix: of every name.
        read: gives all families, every label set among them from the start.
    """

    def __init__(self, prefix: str, read: Callable[[], Iterator[Family | Timing]]) -> None:
        self._prefix = prefix
        self._read = read

    def collect(self) -> Iterator[Metric]:
        for family in self._read():
            name = f"{self._prefix}_{family.name}"
            yield _timing(name, family) if isinstance(family, Timing) else _numbers(name, family)


def _numbers(name: str, family: Family) -> Metric:
    kind = CounterMetricFamily if family.counts else GaugeMetricFamily
    metric = kind(name, family.text, labels=family.labels)
    values = family.value if isinstance(family.value, Mapping) else {(): family.value}
    for key, value in values.items():
        metric.add_metric(_parts(key), value)
    return metric


def _timing(name: str, family: Timing) -> Metric:
    metric = HistogramMetricFamily(name, family.text, labels=family.labels)
    for key, taken in family.value.items():
        metric.add_metric(_parts(key), taken.buckets, taken.total)
    return metric


def _parts(key: object) -> list[str]:
    parts = cast("tuple[object, ...]", key) if isinstance(key, tuple) else (key,)
    return [str(part) for part in parts]


def make_pages(registry: CollectorRegistry, is_ready: Callable[[], bool], pages: Mapping[str, Page]) -> Starlette:
    """The application.

    Args:
        registry: what `/metrics` shows.
        is_ready: whether `/readyz` says 200, or 503.
        pages: what is shown below `/debug/`, by name.
    """

    async def metrics(_: Request) -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_: Request) -> Response:
        ready = is_ready()
        return PlainTextResponse("ready\n" if ready else "not ready\n", 200 if ready else 503)

    routes = [Route("/metrics", metrics), Route("/healthz", healthz), Route("/readyz", readyz)]
    return Starlette(routes=[*routes, *(Route(f"/debug/{name}", _shown(page)) for name, page in pages.items())])


def _shown(page: Page) -> Callable[[Request], Awaitable[Response]]:
    async def show(request: Request) -> Response:
        try:
            content = page(request)
            content = await content if inspect.isawaitable(content) else content
            return content if isinstance(content, Response) else JSONResponse(content)
        except ValueError as exc:
            return JSONResponse({"error": str(exc)}, 400)

    return show


@asynccontextmanager
async def serve_pages(app: Starlette, bind_address: str | None) -> AsyncGenerator[str | None]:
    """Serve them for as long as the block lasts; nothing when there is no address.

    Args:
        bind_address: host:port; port 0 takes any free one.
    Yields:
        The URL to reach them at from this machine.
    Raises:
        OSError: the address is taken or not ours.
        ValueError: it is none.
    """
    if bind_address is None:
        yield None
        return
    host, port = parse_bind_address(bind_address)
    async with serve_http(app, host, port) as url:
        yield url
