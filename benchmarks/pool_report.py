"""What a run of `python -m benchmarks pool` found, as tables and as a chart."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.charts import OTHERS, SERIES, save_figure
from benchmarks.results import Measurement, Results

OPENS, LOSS, CONTROLLER, DECISION = "opens", "loss", "controller", "decision"
DIRECT, RELAYED = "direct", "by another router"
POOL = "pool"  # the kind of results, and the name of the chart
WIDTH, HEIGHT = 12.0, 3.6  # inches
MEGA = 1e6

OPEN_ROWS = (  # what, the value, its unit
    ("a stream open, the median, ms", "open_p50", 1e3),
    ("  the 99th of a hundred, ms", "open_p99", 1e3),
    ("its first byte there and back, ms", "first_byte_p50", 1e3),
    ("a byte there and back, the median, ms", "round_trip_p50", 1e3),
    ("opens a second, 32 at once", "opens_per_second", 1.0),
    ("CPU of an open: client, us", "cpu_client", 1e6),
    ("  the agent's router, us", "cpu_router", 1e6),
    ("  the client's router, us", "cpu_other", 1e6),
    ("  agent and target, us", "cpu_agent", 1e6),
)


def name_of(connections: int) -> str:
    """Of what is measured through an agent with so many connections."""
    return f"{connections} connection{'s' if connections > 1 else ''}"


def of(results: Results, scenario: str) -> list[Measurement]:
    return [one for one in results.measurements if one.scenario == scenario and not one.error]


def print_pool(results: Results, console: Console | None = None) -> None:
    """Everything that was found, what was left out and what went wrong included."""
    console = console or Console()
    console.print(f"{results.machine.describe()}; {results.machine.describe_load()}", style="dim", highlight=False)
    console.print(_opens_table(of(results, OPENS)))
    if loss := [one for one in of(results, LOSS) if one.size]:
        console.print(_loss_table(loss))
    if decided := [one for one in of(results, DECISION) if one.stack.startswith("scale")]:
        console.print(_decisions_table(decided, of(results, CONTROLLER)))
    for name, reason in results.left_out.items():
        console.print(f"{name} was left out: {reason}", style="yellow", highlight=False, markup=False)
    for line in results.errors():
        console.print(f"failed: {line}", style="red", highlight=False, markup=False)


def _opens_table(found: Sequence[Measurement]) -> Table:
    table = Table(title="streams to a target, on loopback")
    for column in ("", *(one.stack for one in found)):
        table.add_column(column, justify="right" if column else "left")
    for text, name, scale in OPEN_ROWS:
        cells = (f"{one.values[name] * scale:,.2f}" if name in one.values else "-" for one in found)
        table.add_row(text, *cells)
    return table


def _loss_table(found: Sequence[Measurement]) -> Table:
    table = Table(title="bytes over a link of 50 ms that loses 1 %, of each round trip")
    for column in ("", "MB/s", "of one"):
        table.add_column(column, justify="right" if column else "left")
    first = found[0].values["bytes_per_second"]
    for one in found:
        rate = one.values["bytes_per_second"]
        table.add_row(one.stack, f"{rate / MEGA:.2f}", f"{rate / first:.1f}" if first else "-")
    return table


def _decisions_table(decided: Sequence[Measurement], looked: Sequence[Measurement]) -> Table:
    last = looked[-1].values["connections"] if looked else 0
    table = Table(title=f"how many connections the agent found to be of use: {last:.0f} in the end")
    for column in ("decision", "with", "queue full to", "waits, ms"):
        table.add_column(column, justify="left" if column == "decision" else "right")
    for one in decided:
        values = one.values
        cells = f"{values['connections']:.0f}", f"{values['queue_pressure']:.0%}", f"{values['queue_wait'] * 1e3:.0f}"
        table.add_row(one.stack, *cells)
    return table


# ── the chart ──


def draw_pool(folder: Path, results: Results) -> list[Path]:
    """Draw a run into `folder`: as `save_figure`."""
    return save_figure(folder, POOL, lambda plt: _draw(plt, results))


def _draw(plt: Any, results: Results) -> Any:
    figure, (opens, loss, found) = plt.subplots(1, 3, figsize=(WIDTH, HEIGHT), layout="constrained")
    _draw_opens(opens, of(results, OPENS))
    _draw_loss(loss, [one for one in of(results, LOSS) if one.size])
    _draw_controller(found, of(results, CONTROLLER))
    return figure


def _draw_opens(panel: Any, measured: Sequence[Measurement]) -> None:
    names = [one.stack for one in measured]
    for name, label, colour in (("open_p50", "to open", SERIES[0]), ("round_trip_p50", "there and back", OTHERS)):
        shift = 0.2 if name == "open_p50" else -0.2
        panel.barh(
            [place + shift for place, _ in enumerate(names)],
            [one.values[name] * 1e3 for one in measured],
            height=0.35,
            color=colour,
            label=label,
        )
    panel.set_yticks(range(len(names)), names)
    panel.invert_yaxis()
    panel.set_title("a stream to a target, loopback", loc="left", fontweight="bold")
    panel.set_xlabel("ms, less is better")
    panel.legend(frameon=False)


def _draw_loss(panel: Any, measured: Sequence[Measurement]) -> None:
    sizes = [one.size for one in measured]
    panel.plot(sizes, [one.values["bytes_per_second"] / MEGA for one in measured], color=SERIES[0], marker="o")
    panel.set_xticks(sizes)
    panel.set_ylim(bottom=0)
    panel.set_title("50 ms and 1 % loss", loc="left", fontweight="bold")
    panel.set_xlabel("connections")
    panel.set_ylabel("MB/s, more is better")


def _draw_controller(panel: Any, measured: Sequence[Measurement]) -> None:
    times = [one.values["at"] for one in measured]
    panel.step(
        times, [one.values["connections"] for one in measured], where="post", color=SERIES[0], label="connections"
    )
    panel.set_ylim(bottom=0)
    panel.set_xlabel("seconds")
    panel.set_ylabel("connections")
    panel.set_title("as many as the agent finds of use", loc="left", fontweight="bold")
    other = panel.twinx()
    rates = [one.values["bytes_per_second"] / MEGA for one in measured]
    other.plot(times, rates, color=OTHERS, linewidth=1, label="MB/s")
    other.set_ylim(bottom=0)
    other.set_ylabel("MB/s")
