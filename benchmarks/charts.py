"""Results as charts, PNG and SVG. Needs matplotlib: `pip install '.[bench]'`.

Colours are those of Okabe and Ito, which people with any colour vision tell apart; nothing is said by colour alone.
"""

import importlib
import importlib.util
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agentmesh.errors import MeshError
from benchmarks.figures import Figure
from benchmarks.growth import COSTS, SIZES, Cost
from benchmarks.results import Results
from benchmarks.summary import Summary
from benchmarks.tables import show_number, title_of

MATPLOTLIB = "matplotlib"
OURS, OTHERS, INK = "#0072B2", "#999999", "#333333"
SERIES = ("#0072B2", "#D55E00", "#009E73")
MARKERS = ("o", "s", "^")
LOG_BEYOND = 20.0  # times the least bar, and a linear axis shows nothing of it
COLUMNS, CURVE_COLUMNS = 2, 3
WIDTH, BAR_HEIGHT, PANEL_MARGIN, CURVE_HEIGHT = 12.0, 0.27, 0.8, 2.4  # inches
FORMATS = ("png", "svg")
DPI = 144
STYLE = {
    "font.size": 9,
    "font.sans-serif": ["DejaVu Sans", "Arial"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "agentmesh",  # so that the same results make the same file
}


class ChartsError(MeshError):
    """Charts cannot be drawn here."""


def check_charts() -> None:
    """Raises ChartsError when there is no matplotlib: better before a run than after it."""
    if importlib.util.find_spec(MATPLOTLIB) is None:
        raise ChartsError("charts take matplotlib: pip install '.[bench]'")


def write_charts(folder: Path, results: Results) -> list[Path]:
    """Draw a run into `folder`: as `save_figure`."""
    draw = _draw_growth if results.kind == "growth" else _draw_scenarios
    return save_figure(folder, results.kind, lambda plt: draw(plt, results))


def save_figure(folder: Path, name: str, draw: Callable[[Any], Any]) -> list[Path]:
    """Draw into `folder`, which is made if it is not there.

    Args:
        name: of the files, without what says their form.
        draw: makes the figure, given `matplotlib.pyplot`.
    Returns:
        The files.
    Raises:
        ChartsError: there is no matplotlib.
        OSError: the folder cannot be written.
    """
    check_charts()
    matplotlib: Any = importlib.import_module(MATPLOTLIB)  # not typed strictly, and not always there
    matplotlib.use("Agg")
    plt: Any = importlib.import_module("matplotlib.pyplot")
    folder.mkdir(parents=True, exist_ok=True)
    with plt.rc_context(STYLE):
        figure = draw(plt)
        paths = [folder / f"{name}.{form}" for form in FORMATS]
        for path in paths:
            figure.savefig(path, dpi=DPI, metadata={"Date": None} if path.suffix == ".svg" else None)
        plt.close(figure)
    return paths


# ── scenarios ──


def _draw_scenarios(plt: Any, results: Results) -> Any:
    drawn = [(figure, bars) for figure in results.figures if (bars := _bars(results, figure))]
    counts = [len(bars) for _, bars in drawn]
    rows = [max(counts[start : start + COLUMNS]) for start in range(0, len(counts), COLUMNS)]
    figure, panels = _panels(plt, len(drawn), COLUMNS, [BAR_HEIGHT * count + PANEL_MARGIN for count in rows])
    for number, (panel, (what, bars)) in enumerate(zip(panels, drawn, strict=False)):
        _draw_bars(panel, what, bars)
        panel.set_ylim(rows[number // COLUMNS] - 0.4, -0.6)  # from the top, all of one height
    return figure


def _bars(results: Results, figure: Figure) -> list[tuple[str, Summary]]:
    """From the top to the bottom of a panel."""
    found = ((stack, results.summary(stack, figure)) for stack in results.stacks)
    return [(stack, summary) for stack, summary in found if summary is not None]


def _panels(plt: Any, count: int, columns: int, heights: Sequence[float]) -> tuple[Any, list[Any]]:
    """So many panels, in rows of these heights."""
    heights = heights or [PANEL_MARGIN]
    figure, axes = plt.subplots(
        len(heights),
        columns,
        figsize=(WIDTH, sum(heights)),
        gridspec_kw={"height_ratios": heights},
        layout="constrained",
        squeeze=False,
    )
    panels = list(axes.flat)
    for unused in panels[count:]:
        unused.set_visible(False)
    return figure, panels


def _draw_bars(panel: Any, figure: Figure, bars: Sequence[tuple[str, Summary]]) -> None:
    medians = [summary.median for _, summary in bars]
    places = range(len(bars))
    whiskers = [
        [summary.median - summary.low for _, summary in bars],
        [summary.high - summary.median for _, summary in bars],
    ]
    colours = [OURS if stack.startswith("agentmesh") else OTHERS for stack, _ in bars]
    panel.barh(places, medians, color=colours, height=0.7)
    panel.errorbar(medians, places, xerr=whiskers, fmt="none", ecolor=INK, elinewidth=1, capsize=3)
    panel.set_yticks(places, [title_of(stack) for stack, _ in bars])
    is_log = max(medians) > LOG_BEYOND * min(medians) > 0
    if is_log:
        panel.set_xscale("log")
        panel.set_xlim(10 ** math.floor(math.log10(min(medians))), 3 * max(medians))
        panel.minorticks_off()
    else:
        panel.margins(x=0.15)
    panel.xaxis.set_major_formatter(_show_tick)
    for place, (_, summary) in zip(places, bars, strict=True):
        panel.annotate(
            show_number(summary.median), (summary.high, place), (5, 0), textcoords="offset points", va="center"
        )
    better = "more is better" if figure.higher_is_better else "less is better"
    panel.set_title(f"{figure.scenario}  {figure.label}", loc="left", fontweight="bold")
    panel.set_xlabel(f"{figure.unit}, {better}{', logarithmic' if is_log else ''}", color=INK)


def _show_tick(value: float, _: int) -> str:
    return f"{value:,g}"


# ── growth ──


def _draw_growth(plt: Any, results: Results) -> Any:
    drawn = [(cost, curve) for cost in COSTS if (curve := results.curve(cost.what, cost.value))]
    rows = math.ceil(len(drawn) / CURVE_COLUMNS)
    figure, panels = _panels(plt, len(drawn), CURVE_COLUMNS, [CURVE_HEIGHT] * rows)
    for panel, (cost, curve) in zip(panels, drawn, strict=False):
        _draw_curve(panel, results, cost, curve)
    return figure


def _draw_curve(panel: Any, results: Results, cost: Cost, curve: Sequence[tuple[int, Summary]]) -> None:
    sizes = [size for size, _ in curve]
    medians = [summary.median * cost.scale for _, summary in curve]
    whiskers = [
        [(summary.median - summary.low) * cost.scale for _, summary in curve],
        [(summary.high - summary.median) * cost.scale for _, summary in curve],
    ]
    kind = list(SIZES).index(cost.what)
    panel.errorbar(sizes, medians, yerr=whiskers, color=SERIES[kind], marker=MARKERS[kind], capsize=3, linestyle="")
    law = ""
    if fit := results.fit(cost.what, cost.value):
        panel.plot(sizes, [fit.at(size) * cost.scale for size in sizes], color=SERIES[kind], linewidth=1)
        law = f", exponent {fit.exponent:.2f}"
    if min(medians) > 0:
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_ylim(min(medians) / 3, max(medians) * 3)
    for size, median in zip(sizes, medians, strict=True):
        panel.annotate(show_number(median), (size, median), (0, 9), textcoords="offset points", ha="center")
    panel.margins(x=0.15)
    panel.set_xticks(sizes, [str(size) for size in sizes])
    panel.set_yticks([])
    panel.minorticks_off()
    panel.set_title(cost.title, loc="left", fontweight="bold", fontsize=9)
    panel.set_xlabel(cost.what, color=INK)
    panel.set_ylabel(f"{cost.unit}{law}", color=INK)
