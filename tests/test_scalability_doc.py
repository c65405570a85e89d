"""docs/scalability.md: its sums are right, and its figures are those of the code."""

import math
import re
from pathlib import Path

import attrs
import pytest

from agentmesh.cli import router
from agentmesh.cli.program import STOP_TIMEOUT
from agentmesh.node import NodeConfig, attachments, reachability
from agentmesh.protocols.relay import BookLimits
from agentmesh.router import departures
from agentmesh.router.members import SETTLED_TIME
from agentmesh.runtime.config import ARRIVALS_PER_SECOND, STOCK_PER_SOURCE, ConnectionLimits
from benchmarks.steps import Model

TEXT = " ".join((Path(__file__).resolve().parent.parent / "docs" / "scalability.md").read_text().split())
TABLE = re.findall(r"\| ([\d,]+) \| (\d+) \| (\d+) \| ([\d,]+) \| ([\d,]+) \|", TEXT)
LIMITS = ConnectionLimits()
FIGURES: dict[str, float] = {  # what the text says, and what it says it of
    "2 unless set": attrs.fields(NodeConfig).routers.default or 0,
    "4000 unless set": LIMITS.high_watermark,
    "15% below H": round(100 * (1 - LIMITS.low_watermark / LIMITS.high_watermark)),
    "looks every 5 seconds": departures.SHED_INTERVAL,
    "alone for 5 minutes": departures.OVERLOADED_RETRY / 60,
    "stay open for 5 seconds": departures.GRACE,
    "may hold H / 4 sessions": LIMITS.high_watermark / LIMITS.max_per_source,
    "for every 8 of them": STOCK_PER_SOURCE,
    "for 1,024 circuits": BookLimits().max_circuits_per_peer,
    "Up to 150 members": departures.AT_ONCE,
    "at 50 a second": departures.DRAINED_PER_SECOND,
    "tells 15 members a second": departures.SHED_PER_SECOND,
    "within 20 seconds or two thirds of the ttl": departures.MAX_SPREAD,
    "replace it within 20 seconds": attachments.REPLACE_SPREAD,
    "wait for 45 seconds": STOP_TIMEOUT + 30.0,
    "and every 15 minutes": reachability.CHECK_INTERVAL / 60,
    "looks again every minute": attachments.MONITOR_INTERVAL / 60,
    "within the last minute": SETTLED_TIME / 60,
}


@pytest.mark.parametrize(("fleet", "held", "routers", "sessions", "high"), TABLE)
def test_a_row_of_the_sizing_is_what_the_model_says(
    fleet: str, held: str, routers: str, sessions: str, high: str
) -> None:
    members, wanted, count, per_router, watermark = (
        int(text.replace(",", "")) for text in (fleet, held, routers, sessions, high)
    )
    model = Model(members, wanted, count, watermark)
    assert math.ceil(model.sessions_per_router) == per_router
    assert math.ceil(model.watermark_needed - 1e-6) == watermark
    assert model.members_that_fit >= members


@pytest.mark.parametrize("said", FIGURES)
def test_a_figure_is_that_of_the_code(said: str) -> None:
    assert said in TEXT
    (number,) = re.findall(r"[\d,]+", said.replace("H / ", "")) or ["1"]
    assert float(number.replace(",", "")) == FIGURES[said]


def test_the_model_is_there_with_all_its_rows() -> None:
    for formula in ("F × K / N", "N × H / K", "1.2 × F × K / (N − 1)", "N (N − 1) / 2", "1 + 1.2 × S / H"):
        assert formula in TEXT
    assert len(TABLE) >= 4
    assert ARRIVALS_PER_SECOND == 0.2
    assert "0.2 a second" in TEXT


def test_what_the_kernel_has_to_allow_is_named() -> None:
    settings = ("ulimit -n", "fs.file-max", "fs.nr_open", "net.core.somaxconn", "kernel.pid_max")
    for setting in (*settings, "net.ipv4.ip_local_port_range", "net.ipv4.neigh.default.gc_thresh3"):
        assert f"`{setting}`" in TEXT
    flags = {flag for option in router.command.params for flag in option.opts}
    assert "--high-watermark" in flags
