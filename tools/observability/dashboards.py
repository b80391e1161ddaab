"""The dashboards: rows of panels under the variables data source, job and namespace."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard

from observability.panels import SOURCE, Panel, built

TAG: Final = "queue-operator"


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under one question."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """One dashboard.

    Attributes:
        name: of its file and its address.
        jobs: the metric whose values of `job` can be chosen.
        namespaces: the metric whose namespaces can be chosen.
        instances: whether one replica or worker can be chosen. Not where all figures come from
            whichever replica shows those of the store.

    """

    name: str
    title: str
    description: str
    rows: Sequence[Row]
    jobs: str = "queueoperator_build_info"
    namespaces: str = "queueoperator_jobs"
    instances: bool = False

    def selectors(self) -> dict[str, str]:
        """What `{:job` and `{:ns` stand for in its expressions."""
        one = 'job=~"$job"' + (', instance=~"$instance"' if self.instances else "")
        return {"{:job": one, "{:ns": f'{one}, namespace=~"$namespace"'}

    def text(self) -> str:
        """The JSON that Grafana loads."""
        builder = (
            builders.Dashboard(self.title)
            .uid(f"queue-operator-{self.name}")
            .description(self.description)
            .tags([TAG])
            .readonly()
            .tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
            .time("now-1h", "now")
            .refresh("30s")
            .variables(list(self._variables()))
            .links([_link()])
        )
        number = 0
        for row in self.rows:
            number += 1
            builder.with_row(builders.Row(row.title).id(number))
            for panel in row.panels:
                number += 1
                builder.with_panel(built(panel, number, self.selectors()))
        return JSONEncoder(indent=1, sort_keys=True).encode(builder.build()) + "\n"

    def _variables(self) -> Iterator[Any]:
        yield builders.DatasourceVariable("datasource").label("Data source").type("prometheus")
        yield _choice("job", f"label_values({self.jobs}, job)", ".+")
        chosen = 'job=~"$job"'
        # What has no such label is chosen by All too: workers outside a cluster.
        yield _choice("namespace", f"label_values({self.namespaces}{{{chosen}}}, namespace)", ".*")
        if self.instances:
            yield _choice("instance", f"label_values({self.jobs}{{{chosen}}}, instance)", ".+")


def _choice(name: str, query: str, everything: str) -> builders.QueryVariable:
    return (
        builders.QueryVariable(name)
        .label(name.capitalize())
        .query(query)
        .datasource(SOURCE)
        .refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(dashboard.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(everything)
        .current(dashboard.VariableOption(text=["All"], value=["$__all"]))
    )


def _link() -> builders.DashboardLink:
    """To the other dashboards, at the same time. Not with the same choices: the job of workers is
    another one.
    """
    return (
        builders.DashboardLink("Queue Operator")
        .type(dashboard.DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .as_dropdown(False)
        .include_vars(False)
        .keep_time(True)
    )
