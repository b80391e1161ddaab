"""Panels of one look: what all dashboards have in common."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from grafana_foundation_sdk.builders import bargauge as bargauge_builders
from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import gauge as gauge_builders
from grafana_foundation_sdk.builders import heatmap as heatmap_builders
from grafana_foundation_sdk.builders import prometheus
from grafana_foundation_sdk.builders import stat as stat_builders
from grafana_foundation_sdk.builders import table as table_builders
from grafana_foundation_sdk.builders import timeseries as timeseries_builders
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

SOURCE: Final = dashboard.DataSourceRef(type_val="prometheus", uid="${datasource}")
GREEN, YELLOW, RED = "green", "#EAB839", "red"
WIDTH: Final = 24
"""Of a dashboard, in the units of `width`."""

Step = tuple[float | None, str]
"""From this value on (None: from the least) this color."""


@dataclass(frozen=True, slots=True)
class Query:
    """An expression and the legend of each of its series; `{:ns` and the like are selectors."""

    expression: str
    legend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """What every panel has.

    Attributes:
        kind: `stat`, `gauge`, `timeseries`, `heatmap`, `bargauge` or `table`.
        unit: one of Grafana's.
        steps: thresholds; none where no value is bad by itself.
        columns: of a table, its labels in order; the value is named `value`.

    """

    kind: str
    title: str
    description: str
    queries: Sequence[Query]
    unit: str = "short"
    steps: Sequence[Step] = ()
    width: int = 8
    height: int = 8
    stacked: bool = False
    columns: Sequence[str] = ()
    value: str = "Value"
    decimals: int | None = None
    names: dict[str, str] = field(default_factory=dict)


def built(panel: Panel, number: int, selectors: dict[str, str]) -> Any:
    """The builder of a panel. `number` is its id in the dashboard."""
    builder: Any = _BUILDERS[panel.kind](panel)
    builder.id(number).title(panel.title).description(" ".join(panel.description.split()))
    builder.datasource(SOURCE).span(panel.width).height(panel.height).unit(panel.unit)
    if panel.decimals is not None:
        builder.decimals(panel.decimals)
    steps = panel.steps or ((None, GREEN),)
    builder.thresholds(
        builders.ThresholdsConfig()
        .mode(dashboard.ThresholdsMode.ABSOLUTE)
        .steps([dashboard.Threshold(value=value, color=color) for value, color in steps])
    )
    for letter, query in zip("ABCDEFGH", panel.queries, strict=False):
        builder.with_target(_target(panel, letter, query, selectors))
    return builder


def selected(expression: str, selectors: dict[str, str]) -> str:
    """The expression with its selectors spelt out, on one line."""
    for short, long in selectors.items():
        expression = expression.replace(short, "{" + long)
    return " ".join(expression.split())


def _target(panel: Panel, letter: str, query: Query, selectors: dict[str, str]) -> Any:
    target = prometheus.Dataquery().ref_id(letter).datasource(SOURCE)
    target.expr(selected(query.expression, selectors)).legend_format(query.legend or "__auto")
    if panel.kind in {"table", "bargauge"}:
        target.instant()
    else:
        target.range()
    if panel.kind == "table":
        target.format(PromQueryFormat.TABLE)
    elif panel.kind == "heatmap":
        target.format(PromQueryFormat.HEATMAP)
    else:
        target.format(PromQueryFormat.TIME_SERIES)
    return target


def _last() -> common_builders.ReduceDataOptions:
    return common_builders.ReduceDataOptions().calcs(["lastNotNull"]).fields("").values(False)


def _stat(_: Panel) -> stat_builders.Panel:
    return (
        stat_builders.Panel()
        .reduce_options(_last())
        .color_mode(common.BigValueColorMode.VALUE)
        .graph_mode(common.BigValueGraphMode.AREA)
        .text_mode(common.BigValueTextMode.AUTO)
    )


def _gauge(_: Panel) -> gauge_builders.Panel:
    return gauge_builders.Panel().reduce_options(_last()).show_threshold_markers(True).max(1)


def _timeseries(panel: Panel) -> timeseries_builders.Panel:
    legend = (
        common_builders.VizLegendOptions()
        .display_mode(common.LegendDisplayMode.LIST)
        .placement(common.LegendPlacement.BOTTOM)
        .show_legend(True)
    )
    builder = (
        timeseries_builders.Panel()
        .legend(legend)
        .tooltip(
            common_builders.VizTooltipOptions()
            .mode(common.TooltipDisplayMode.MULTI)
            .sort(common.SortOrder.DESCENDING)
        )
        .line_width(1)
        .fill_opacity(25 if panel.stacked else 8)
        .show_points(common.VisibilityMode.NEVER)
        .axis_soft_min(0)
    )
    if panel.stacked:
        builder.stacking(common_builders.StackingConfig().mode(common.StackingMode.NORMAL))
    if panel.steps:
        builder.thresholds_style(
            common_builders.GraphThresholdsStyleConfig().mode(
                common.GraphThresholdsStyleMode.DASHED
            )
        )
    return builder


def _heatmap(panel: Panel) -> heatmap_builders.Panel:
    return (
        heatmap_builders.Panel()
        .calculate(False)
        .color(heatmap_builders.HeatmapColorOptions().scheme("Oranges").steps(64))
        .y_axis(heatmap_builders.YAxisConfig().unit(panel.unit))
        .cell_gap(1)
    )


def _bargauge(_: Panel) -> bargauge_builders.Panel:
    return (
        bargauge_builders.Panel()
        .reduce_options(_last())
        .orientation(common.VizOrientation.HORIZONTAL)
        .display_mode(common.BarGaugeDisplayMode.BASIC)
        .min(0)
    )


def _table(panel: Panel) -> table_builders.Panel:
    order = {name: place for place, name in enumerate(panel.columns)}
    organized = dashboard.DataTransformerConfig(
        id_val="organize",
        options={
            "excludeByName": {"Time": True},
            "indexByName": {**order, "Value": len(order)},
            "renameByName": {"Value": panel.value, **panel.names},
        },
    )
    return (
        table_builders.Panel()
        .show_header(True)
        .cell_height(common.TableCellHeight.SM)
        .with_transformation(organized)
        .no_value("none")
    )


_BUILDERS: Final = {
    "stat": _stat,
    "gauge": _gauge,
    "timeseries": _timeseries,
    "heatmap": _heatmap,
    "bargauge": _bargauge,
    "table": _table,
}
