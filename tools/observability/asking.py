"""What Prometheus answers to the expressions of the dashboards, as Grafana would ask them."""

import json
import math
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

EVERYTHING: Final[Mapping[str, str]] = {"job": ".+", "namespace": ".*", "instance": ".+"}
"""Each variable when All is chosen."""
_TIMEOUT_S: Final = 30.0
_LABEL: Final = re.compile(r"{{\s*(\w+)\s*}}")
_AUTO: Final = "__auto"


class NoAnswer(Exception):
    """Prometheus could not be reached, or refused an expression. The text has its words."""


@dataclass(frozen=True, slots=True)
class Course:
    """One series: its labels, and its values by time."""

    labels: Mapping[str, str]
    points: Sequence[tuple[float, float]]

    @property
    def last(self) -> float:
        """The newest value; NaN if there is none."""
        return self.points[-1][1] if self.points else math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """What time is looked at.

    Attributes:
        start_s: of the epoch, like `end_s`.
        scrape_s: how often Prometheus scrapes; a rate needs several samples.
        points: about so many values of each series.

    """

    start_s: float
    end_s: float
    scrape_s: float = 15.0
    points: int = 240

    @property
    def step_s(self) -> float:
        return max(self.scrape_s, (self.end_s - self.start_s) / self.points)

    @property
    def rate_interval_s(self) -> float:
        """Grafana's `$__rate_interval`."""
        return max(4 * self.scrape_s, self.step_s + self.scrape_s)


@dataclass(frozen=True, slots=True)
class Look:
    """One expression of one panel, as Grafana would send it."""

    dashboard: str
    panel: str
    letter: str
    expression: str
    legend: str
    instant: bool


def looks(
    board: Mapping[str, Any], period: Period, chosen: Mapping[str, str] = EVERYTHING
) -> list[Look]:
    """Every expression of a dashboard, its variables filled in."""
    return [
        one for panel in board["panels"] for one in looks_of(board["title"], panel, period, chosen)
    ]


def looks_of(
    title: str, panel: Mapping[str, Any], period: Period, chosen: Mapping[str, str] = EVERYTHING
) -> list[Look]:
    """The expressions of one panel; none of a row."""
    return [
        Look(
            title,
            panel["title"],
            target["refId"],
            filled(target["expr"], period, chosen),
            target.get("legendFormat", _AUTO),
            bool(target.get("instant")),
        )
        for target in panel.get("targets", ())
    ]


def filled(expression: str, period: Period, chosen: Mapping[str, str]) -> str:
    """The expression with values for all variables. Variables that are not chosen stand for all."""
    values = {
        "__rate_interval": _duration(period.rate_interval_s),
        "__range": _duration(period.end_s - period.start_s),
        **EVERYTHING,
        **chosen,
    }
    for name in sorted(values, key=len, reverse=True):
        expression = expression.replace(f"${name}", values[name])
    return expression


def _duration(seconds: float) -> str:
    return f"{max(1, round(seconds * 1000))}ms"


class Prometheus:
    """The HTTP API of one Prometheus."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    def at(self, expression: str, at_s: float) -> list[Course]:
        """The value of each series at one time. Raises NoAnswer."""
        found = self.get("query", query=expression, time=at_s)
        if found["resultType"] == "scalar":
            return [Course({}, [_point(found["result"])])]
        return [Course(one["metric"], [_point(one["value"])]) for one in found["result"]]

    def over(self, expression: str, period: Period) -> list[Course]:
        """The values of each series over a period. Raises NoAnswer."""
        found = self.get(
            "query_range",
            query=expression,
            start=period.start_s,
            end=period.end_s,
            step=period.step_s,
        )
        return [Course(one["metric"], [*map(_point, one["values"])]) for one in found["result"]]

    def answer(self, look: Look, period: Period) -> list[Course]:
        """What the panel gets. Raises NoAnswer."""
        if look.instant:
            return self.at(look.expression, period.end_s)
        return self.over(look.expression, period)

    def get(self, call: str, **parameters: str | float) -> Any:
        """The data of any call of the API. Raises NoAnswer."""
        query = urllib.parse.urlencode(parameters)
        address = f"{self._url}/api/v1/{call}?{query}"
        try:
            with urllib.request.urlopen(address, timeout=_TIMEOUT_S) as answer:  # noqa: S310
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            with error:
                said = error.read().decode(errors="replace")
            raise NoAnswer(f"{call} was refused: {said}: {parameters.get('query', '')}") from None
        except (OSError, ValueError, KeyError) as error:
            raise NoAnswer(f"{self._url} does not answer: {error}") from None


def _point(pair: Sequence[Any]) -> tuple[float, float]:
    return float(pair[0]), float(pair[1])


def legend(look: Look, course: Course) -> str:
    """The name of a series, as Grafana writes it."""
    if look.legend != _AUTO:
        return _LABEL.sub(lambda found: course.labels.get(found[1], ""), look.legend).strip()
    shown = {name: value for name, value in course.labels.items() if name != "__name__"}
    return ", ".join(f"{name}={value}" for name, value in shown.items()) or look.panel
