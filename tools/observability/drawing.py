"""Draws panels from their JSON and Prometheus' answers, near to how Grafana shows them."""

import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure, FigureBase, SubFigure
from matplotlib.gridspec import GridSpec
from matplotlib.patches import Wedge
from matplotlib.ticker import FuncFormatter, MaxNLocator
from PIL import Image

from observability.asking import Course, Look, legend
from observability.units import written

Panel = Mapping[str, Any]
DPI: Final = 80
COLUMN_PX, CELL_PX = 56.0, 30.0
"""Of one unit of a dashboard's grid."""
PALETTE: Final = (
    *("#73BF69", "#F2CC0C", "#8AB8FF", "#FF780A", "#F2495C"),
    *("#5794F2", "#B877D9", "#37872D", "#E0B400", "#CA95E5"),
)
_NAMED: Final = {"green": "#73BF69", "red": "#F2495C", "text": None, "transparent": None}
_MOST_ROWS: Final = 10
_COLORS: Final = 256


@dataclass(frozen=True, slots=True)
class Theme:
    """Colors of the page, a panel, its text and its lines."""

    page: str
    panel: str
    text: str
    faint: str


DARK: Final = Theme("#111217", "#181b1f", "#ccccdc", "#33373d")
LIGHT: Final = Theme("#f4f5f5", "#ffffff", "#24292e", "#d8d9da")


@dataclass(frozen=True, slots=True)
class Shown:
    """A panel and what was answered to its expressions."""

    panel: Panel
    answers: Sequence[tuple[Look, Sequence[Course]]]

    @property
    def courses(self) -> list[tuple[str, Course]]:
        """All series by their name in the legend."""
        return [(legend(look, one), one) for look, found in self.answers for one in found]

    @property
    def unit(self) -> str:
        return str(self.panel["fieldConfig"]["defaults"].get("unit", "short"))

    @property
    def decimals(self) -> int | None:
        found = self.panel["fieldConfig"]["defaults"].get("decimals")
        return None if found is None else int(found)

    def says(self, value: float) -> str:
        """The value as this panel writes it."""
        return written(value, self.unit, self.decimals)

    def steps(self) -> list[tuple[float, str | None]]:
        """Thresholds: from which value on which color; None is that of text."""
        found = self.panel["fieldConfig"]["defaults"].get("thresholds", {}).get("steps", ())
        return [
            (
                -math.inf if one.get("value") is None else one["value"],
                _NAMED.get(one["color"], one["color"]),
            )
            for one in found
        ]

    def color(self, value: float, theme: Theme) -> str:
        """Of the highest threshold that the value reaches."""
        reached = [color for least, color in self.steps() if value >= least]
        return (reached[-1] if reached else None) or theme.text


def page(board: Mapping[str, Any], shown: Sequence[Shown], theme: Theme = DARK) -> Figure:
    """The whole dashboard, in Grafana's grid; `shown` are its panels but not its rows."""
    rows = max(one["gridPos"]["y"] + one["gridPos"]["h"] for one in board["panels"])
    figure = _figure(24 * COLUMN_PX, rows * CELL_PX + CELL_PX, theme)
    figure.set_facecolor(theme.page)
    grid = GridSpec(rows + 1, 24, figure, left=0, right=1, top=1, bottom=0, wspace=0, hspace=0)
    head = figure.add_subfigure(grid[0:1, :], facecolor=theme.page)
    head.text(0.005, 0.5, board["title"], color=theme.text, size=13, va="center", weight="bold")
    for one in board["panels"]:
        if one["type"] == "row":
            place = one["gridPos"]
            part = figure.add_subfigure(grid[place["y"] + 1, :], facecolor=theme.page)
            part.text(0.005, 0.4, one["title"], color=theme.text, size=11, va="center")
    for each in shown:
        place = each.panel["gridPos"]
        top, left = place["y"] + 1, place["x"]
        cell = grid[top : top + place["h"], left : left + place["w"]]
        draw(each, figure.add_subfigure(cell, facecolor=theme.panel, edgecolor=theme.page), theme)
    return figure


def single(shown: Shown, theme: Theme = DARK) -> Figure:
    """One panel for itself."""
    place = shown.panel["gridPos"]
    figure = _figure(place["w"] * COLUMN_PX, place["h"] * CELL_PX, theme)
    draw(shown, figure, theme)
    return figure


def _figure(width_px: float, height_px: float, theme: Theme) -> Figure:
    figure = Figure(figsize=(width_px / DPI, height_px / DPI), dpi=DPI, facecolor=theme.panel)
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, file: Path) -> None:
    """Writes a PNG of few colors, which is a third as large."""
    raw = io.BytesIO()
    figure.savefig(raw, format="png")
    Image.open(raw).convert("RGB").quantize(_COLORS).save(file, optimize=True)


def draw(shown: Shown, into: Figure | SubFigure, theme: Theme) -> None:
    """Draws the title and what was answered; `No data` where nothing was."""
    into.patch.set_linewidth(4)
    height = shown.panel["gridPos"]["h"] * CELL_PX
    into.text(
        0.02,
        1 - 9 / height,
        shown.panel["title"],
        color=theme.text,
        size=9,
        va="top",
        weight="bold",
    )
    drawn = [course for _, course in shown.courses if course.points]
    if not drawn:
        into.text(0.5, 0.45, "No data", color=theme.text, size=10, ha="center", va="center")
        return
    _DRAWERS[shown.panel["type"]](shown, into, theme)


def _axes(into: FigureBase, theme: Theme, box: tuple[float, float, float, float]) -> Axes:
    axes: Axes = into.add_axes(box)
    axes.set_facecolor(theme.panel)
    axes.tick_params(colors=theme.text, labelsize=7, length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    return axes


def _timed(axes: Axes, theme: Theme) -> None:
    locator = AutoDateLocator(tz=UTC, minticks=3, maxticks=7)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    named = ConciseDateFormatter(locator, tz=UTC, show_offset=False)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_formatter(named)
    axes.grid(visible=True, color=theme.faint, linewidth=0.6)


def _moments(course: Course) -> list[datetime]:
    return [datetime.fromtimestamp(at, UTC) for at, _ in course.points]


def _timeseries(shown: Shown, into: FigureBase, theme: Theme) -> None:
    height = shown.panel["gridPos"]["h"] * CELL_PX
    axes = _axes(into, theme, (0.15, 62 / height, 0.83, 1 - 92 / height))
    custom = shown.panel["fieldConfig"]["defaults"].get("custom", {})
    stacked = custom.get("stacking", {}).get("mode") == "normal"
    below: dict[float, float] = {}
    for number, (name, course) in enumerate(shown.courses):
        color = PALETTE[number % len(PALETTE)]
        base = [below.get(at, 0.0) if stacked else 0.0 for at, _ in course.points]
        values = [value + under for (_, value), under in zip(course.points, base, strict=True)]
        moments = _moments(course)
        mark = "." if len(values) == 1 else ""
        axes.plot(moments, values, color=color, linewidth=1.1, label=name, marker=mark)  # type: ignore[arg-type]
        axes.fill_between(moments, base, values, color=color, alpha=0.3 if stacked else 0.08)  # type: ignore[arg-type]
        if stacked:
            below.update(zip((at for at, _ in course.points), values, strict=True))
    _timed(axes, theme)
    every = [value for _, course in shown.courses for _, value in course.points]
    axes.set_ylim(bottom=min(0.0, *every, 0.0))
    if max(every) <= 0:
        axes.set_ylim(top=1.0)
    for bound, marked in shown.steps() if custom.get("thresholdsStyle") else ():
        if marked is not None and bound <= axes.get_ylim()[1]:
            axes.axhline(bound, color=marked, linestyle="--", linewidth=1)
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: shown.says(value)))
    _legend(axes, into, theme)


def _legend(axes: Axes, into: FigureBase, theme: Theme) -> None:
    """In at most three lines."""
    handles, names = axes.get_legend_handles_labels()
    columns = min(5, max(1, 66 // (max(map(len, names)) + 4)))
    most = 3 * columns
    if len(names) > most:
        more = len(names) - most
        handles, names = (
            handles[:most],
            [*names[: most - 1], f"{names[most - 1]} (and {more} more)"],
        )
    into.legend(
        handles,
        names,
        loc="lower left",
        ncols=columns,
        frameon=False,
        fontsize=7,
        labelcolor=theme.text,
        handlelength=1,
        columnspacing=1,
        borderaxespad=0.3,
    )


def _stat(shown: Shown, into: FigureBase, theme: Theme) -> None:
    (name, course), *others = shown.courses
    color = shown.color(course.last, theme)
    axes = _axes(into, theme, (0.0, 0.0, 1.0, 0.4))
    axes.set_axis_off()
    moments, values = _moments(course), [value for _, value in course.points]
    axes.plot(moments, values, color=color, linewidth=1, label=name)  # type: ignore[arg-type]
    axes.fill_between(moments, min(0.0, *values), values, color=color, alpha=0.2)  # type: ignore[arg-type]
    text = shown.says(course.last)
    place = shown.panel["gridPos"]
    size = min(30.0, place["w"] * COLUMN_PX / max(4, len(text)) * 1.1, place["h"] * 6.0)
    into.text(0.5, 0.55, text, color=color, size=size, ha="center", va="center", weight="bold")
    if others:
        into.text(0.98, 0.03, f"and {len(others)} more", color=theme.text, size=7, ha="right")


def _gauge(shown: Shown, into: FigureBase, theme: Theme) -> None:
    (_, course), *_rest = shown.courses
    value = course.last
    axes = _axes(into, theme, (0.1, 0.02, 0.8, 0.72))
    axes.set_axis_off()
    axes.set_aspect("equal")
    axes.set_xlim(-1.05, 1.05)
    axes.set_ylim(-0.3, 1.05)
    part = min(1.0, max(0.0, value)) if math.isfinite(value) else 0.0
    axes.add_patch(Wedge((0, 0), 1, 0, 180, width=0.25, color=theme.faint))
    color = shown.color(value, theme)
    axes.add_patch(Wedge((0, 0), 1, 180 - 180 * part, 180, width=0.25, color=color))
    axes.text(0, 0.05, shown.says(value), color=color, size=15, ha="center", weight="bold")


def _bargauge(shown: Shown, into: FigureBase, theme: Theme) -> None:
    found = sorted(shown.courses, key=lambda pair: pair[1].last, reverse=True)[:_MOST_ROWS]
    axes = _axes(into, theme, (0.3, 0.05, 0.55, 0.8))
    values = [course.last for _, course in found]
    colors = [shown.color(value, theme) for value in values]
    axes.barh(range(len(found)), values, color=colors, height=0.6)
    axes.set_yticks(range(len(found)), [name for name, _ in found])
    axes.invert_yaxis()
    axes.set_ylim(max(3.5, len(found) - 0.5), -0.5)
    axes.set_xticks([])
    for place, value in enumerate(values):
        axes.text(value, place, f" {shown.says(value)}", color=colors[place], va="center", size=8)


def _table(shown: Shown, into: FigureBase, theme: Theme) -> None:
    (organized,) = shown.panel["transformations"]
    renamed = organized["options"]["renameByName"]
    order = sorted(organized["options"]["indexByName"].items(), key=lambda pair: pair[1])
    columns = [name for name, _ in order]
    courses = sorted((one for _, one in shown.courses), key=lambda one: one.last, reverse=True)
    most = min(len(courses), int(shown.panel["gridPos"]["h"] * CELL_PX / 20) - 3)
    step = 20 / (shown.panel["gridPos"]["h"] * CELL_PX)
    titles = [renamed.get(name, name) for name in columns]
    cells = [
        [shown.says(one.last) if name == "Value" else one.labels.get(name, "") for name in columns]
        for one in courses[:most]
    ]
    widths = [max(map(len, column)) + 3 for column in zip(titles, *cells, strict=True)]
    for number, name in enumerate(columns):
        across = 0.02 + 0.96 * sum(widths[:number]) / max(60, sum(widths))
        top = 1 - 2.3 * step
        title = titles[number]
        into.text(across, top, title, color=PALETTE[2], size=8, va="center", weight="bold")
        for row, course in enumerate(courses[:most], 1):
            value = cells[row - 1][number]
            color = shown.color(course.last, theme) if name == "Value" else theme.text
            color = theme.text if color == _NAMED["green"] else color
            into.text(across, top - row * step, value, color=color, size=8, va="center")
    if most < len(courses):
        more = f"and {len(courses) - most} more"
        into.text(0.98, 0.02, more, color=theme.text, size=7, ha="right")


def _heatmap(shown: Shown, into: FigureBase, theme: Theme) -> None:
    """Buckets are cumulative; a cell is what one has beyond the one below."""
    axes = _axes(into, theme, (0.12, 0.12, 0.86, 0.74))
    buckets = sorted((float(course.labels["le"]), course) for _, course in shown.courses)
    times = sorted({at for _, course in buckets for at, _ in course.points})
    cells: list[list[float]] = []
    below = dict.fromkeys(times, 0.0)
    for _, course in buckets:
        here = {**below, **dict(course.points)}
        cells.append([max(0.0, here[at] - below[at]) for at in times])
        below = here
    used = [number for number, row in enumerate(cells) if sum(row) > 0] or [0]
    first, last = max(0, used[0] - 1), min(len(cells), max(used[-1] + 2, 3))
    moments = [datetime.fromtimestamp(at, UTC) for at in times]
    shape = [[cell or math.nan for cell in row] for row in cells[first:last]]
    axes.pcolormesh(moments, range(last - first), shape, cmap="YlOrRd", shading="nearest")  # type: ignore[arg-type]
    names = [written(bound, shown.unit) for bound, _ in buckets[first:last]]
    axes.set_yticks(range(last - first), names)
    _timed(axes, theme)


_DRAWERS: Final[Mapping[str, Callable[[Shown, FigureBase, Theme], None]]] = {
    "timeseries": _timeseries,
    "stat": _stat,
    "gauge": _gauge,
    "bargauge": _bargauge,
    "table": _table,
    "heatmap": _heatmap,
}
