"""The benchmark of the pool: its link that loses packets, what it shows, and one small run of real processes."""

import json
import os
import random
from pathlib import Path

import pytest
import trio
from rich.console import Console
from trio.testing import MockClock

from benchmarks.pool import Bench, Plan, measure, measure_loss
from benchmarks.pool_report import CONTROLLER, DECISION, LOSS, OPENS, draw_pool, of, print_pool
from benchmarks.results import Measurement, Results, Settings
from benchmarks.stacks.lossy import MAX_PACKETS, Direction
from tests.benchmarks.made import MACHINE

VALUES = {"open_p50": 0.001, "open_p99": 0.002, "first_byte_p50": 0.001, "round_trip_p50": 0.0005}


def results(*measurements: Measurement) -> Results:
    return Results("pool", "2026-01-02T03:04:05+00:00", MACHINE, Settings((), 1, 1.0, 0), (), {}, list(measurements))


FOUND = results(
    Measurement("direct", OPENS, 0, {**VALUES, "opens_per_second": 2000.0, "cpu_client": 1e-4}),
    Measurement("1 connection", OPENS, 0, {**VALUES, "opens_per_second": 500.0, "cpu_router": 5e-4}),
    Measurement("1 connection", LOSS, 0, {"bytes_per_second": 5e5}, size=1),
    Measurement("8 connections", LOSS, 0, {"bytes_per_second": 4e6}, size=8),
    Measurement(CONTROLLER, CONTROLLER, 0, {"at": 1.0, "connections": 1, "bytes_per_second": 1e5}),
    Measurement(CONTROLLER, CONTROLLER, 0, {"at": 2.0, "connections": 7, "bytes_per_second": 2e5}),
    Measurement("scale_up: queue_pressure", DECISION, 0, {"connections": 6, "queue_wait": 1.5, "queue_pressure": 0.9}),
    Measurement("hold: steady", DECISION, 0, {"connections": 6, "queue_wait": 0.0, "queue_pressure": 0.0}),
)


def test_everything_that_was_found_is_shown() -> None:
    console = Console(record=True, width=120)
    print_pool(FOUND, console)
    text = console.export_text()
    for shown in ("2,000.00", "500.00", "8 connections", "8.0", "7 in the end", "scale_up", "90%", "1500"):
        assert shown in text
    assert "hold" not in text


def test_it_is_drawn(tmp_path: Path) -> None:
    assert [path.name for path in draw_pool(tmp_path, FOUND)] == ["pool.png", "pool.svg"]


def test_results_come_back_from_json() -> None:
    assert Results.from_json(FOUND.to_json()) == FOUND


async def test_packets_are_late_and_some_never_come(autojump_clock: MockClock) -> None:
    (near_out, near_in), (far_out, far_in) = os.pipe2(os.O_NONBLOCK), os.pipe2(os.O_NONBLOCK)
    way = Direction(near_out, far_in, delay=0.05, loss=0.2, chance=random.Random(1))
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(way.take)
            nursery.start_soon(way.give)
            for _ in range(100):
                os.write(near_in, b"packet")
                await trio.testing.wait_all_tasks_blocked(0.001)  # it is taken, as a packet of its own
            assert way.passed == 0
            await trio.sleep(1)
            nursery.cancel_scope.cancel()
        assert 5 < way.lost < 40
        assert way.passed > 0
        assert len(os.read(far_out, 10_000)) == 6 * 100 - 6 * way.lost
    finally:
        for file in (near_out, near_in, far_out, far_in):
            os.close(file)
    assert MAX_PACKETS == 1000


async def test_without_root_the_lossy_link_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    found = results()
    await measure_loss(Bench(found, Plan(), tmp_path))
    assert found.left_out == {"loss": "a lossy link takes root"}
    assert not found.measurements


async def test_a_stream_through_an_agent_beside_one_without(tmp_path: Path) -> None:
    found = results()
    await measure(Bench(found, Plan(opens=0.1, counts=(2,)), tmp_path), lossy=False)
    direct, pooled, relayed = of(found, OPENS)
    assert [one.stack for one in found.measurements] == ["direct", "2 connections", "by another router"]
    assert found.is_whole
    for one in (direct, pooled, relayed):
        assert 0 < one.values["open_p50"] <= one.values["open_p99"]
        assert one.values["opens_per_second"] > 0
    assert json.loads(found.to_json())["measurements"][1]["values"]["cpu_router"] > 0
