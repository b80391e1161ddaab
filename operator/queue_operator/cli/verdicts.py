"""How a queue does, on a terminal."""

from collections.abc import Iterator, Mapping
from typing import Final

from rich.console import RenderableType
from rich.text import Text

from queue_operator.cli import rendering
from queue_operator.client.models import Cause, Verdict

_STYLES: Final[Mapping[str, str]] = {
    "HEALTHY": "bold green",
    "BUSY": "bold",
    "DEGRADED": "bold yellow",
    "STUCK": "bold red",
}


def sentence(verdict: Verdict) -> Text:
    """The verdict in its colour."""
    return Text(rendering.plain(verdict.sentence), style=_STYLES.get(verdict.level, "bold"))


def reasons(verdict: Verdict) -> Iterator[RenderableType]:
    """The sentence, what was counted, and each cause with what to do next."""
    yield sentence(verdict)
    what = f"type {verdict.type} of {verdict.namespace}" if verdict.type else verdict.namespace
    yield rendering.facts(
        [
            ("namespace" if not verdict.type else "about", what),
            ("could run", f"{verdict.due:,}"),
            ("running", f"{verdict.running:,}"),
            ("not yet due", f"{verdict.later:,}"),
            ("workers", f"{verdict.workers:,}, {verdict.busy:,} of {verdict.slots:,} slots taken"),
        ]
    )
    for cause in verdict.causes:
        yield Text()
        yield from _cause(cause)


def _cause(cause: Cause) -> Iterator[RenderableType]:
    yield Text(
        rendering.plain(f"{cause.code}: {cause.message}"), style=_STYLES.get(cause.level, "")
    )
    counted = ", ".join(
        f"{name} {value}" for name, value in cause.evidence.items() if value not in ("", None)
    )
    yield rendering.facts(
        [
            ("types", ", ".join(cause.types)),
            ("counted", counted),
            ("next", cause.next_step),
            ("type", cause.command),
            ("runbook", cause.runbook),
        ]
    )
