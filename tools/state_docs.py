"""Generates the state table and the state diagram of the documentation."""

from collections.abc import Iterator
from pathlib import Path

from queue_operator.domain.states import TERMINAL, TRANSITIONS, JobState
from queue_operator.domain.views import PHASE, SEMANTIC

ROOT = Path(__file__).resolve().parent.parent
README = Path("README.md")
REFERENCE = Path("docs/reference/states.md")
_BEGIN = "<!-- states: generated -->"
_END = "<!-- /states -->"


def documents() -> dict[Path, str]:
    """The reference page, and the README with its diagram renewed."""
    return {REFERENCE: _reference(), README: _readme((ROOT / README).read_text())}


def diagram() -> str:
    """The transitions as a Mermaid state diagram; events between the same states share an edge."""
    edges: dict[tuple[JobState, JobState], list[str]] = {}
    for row in TRANSITIONS:
        for source in row.sources:
            edges.setdefault((source, row.target), []).append(row.event.value)
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> INITIAL_PENDING : submit"]
    lines += [f"    {a} --> {b} : {', '.join(events)}" for (a, b), events in edges.items()]
    lines += [f"    {state} --> [*]" for state in TERMINAL]
    return "\n".join([*lines, "```"])


def _readme(text: str) -> str:
    head, _, rest = text.partition(_BEGIN)
    _, _, tail = rest.partition(_END)
    return f"{head}{_BEGIN}\n{diagram()}\n{_END}{tail}"


def _reference() -> str:
    return "\n".join(
        [
            "# Job states",
            "",
            "Generated from `queue_operator/domain/states.py`. A pair of states that is not in",
            "the table is an illegal transition.",
            "",
            diagram(),
            "",
            "## Transitions",
            "",
            "| event | from | to | who | fenced by |",
            "|---|---|---|---|---|",
            *_transition_rows(),
            "",
            "## How a state is shown",
            "",
            "`phase` is refined further: INITIAL_PENDING is PENDING while it waits for other jobs",
            "and DELAYED until its time; DEAD_LETTER by a permanent error is FAILED.",
            "",
            "| state | terminal | `queue-semantics.md` | phase |",
            "|---|---|---|---|",
            *_view_rows(),
            "",
        ]
    )


def _transition_rows() -> Iterator[str]:
    for row in TRANSITIONS:
        sources = ", ".join(row.sources)
        yield f"| {row.event} | {sources} | {row.target} | {row.actor} | {row.fence.value} |"


def _view_rows() -> Iterator[str]:
    for state in JobState:
        terminal = "yes" if state in TERMINAL else ""
        yield f"| {state} | {terminal} | {SEMANTIC[state].value} | {PHASE[state]} |"
