"""Loads SQL statements from files and writes the state names into them.

A statement says `{{eligible}}` where it means the states of `domain.states.ELIGIBLE`, and
`{{RUNNING}}` where it means one state. They are written as literals, once, because with a
bound parameter the planner cannot use a partial index on the state.
"""

import re
from importlib.resources import files
from typing import Final, LiteralString

from queue_operator.domain.states import (
    ELIGIBLE,
    SLOT_HOLDING,
    TERMINAL,
    Event,
    JobState,
    sources,
    sql_literals,
)

_WORDS: Final[dict[str, str]] = {
    "eligible": sql_literals(ELIGIBLE),
    "slot_holding": sql_literals(SLOT_HOLDING),
    "terminal": sql_literals(TERMINAL),
    "completed": sql_literals((JobState.COMPLETED,)),
    **{state.value: sql_literals((state,)) for state in JobState},
    **{f"sources.{event.value}": sql_literals(sources(event)) for event in Event},
}


def render(text: str, **words: LiteralString) -> LiteralString:
    """`text` with every `{{word}}` replaced. Raises KeyError for a word without meaning."""
    known = {**_WORDS, **words}
    rendered = re.sub(r"\{\{([\w.]+)\}\}", lambda match: known[match[1]], text)
    # Nothing but words of the state table and literals was put in: it is as literal as the file.
    return rendered


def load(package: str, name: str, **words: LiteralString) -> LiteralString:
    """The statement `queries/<name>.sql` of a backend's package, without comments and
    indentation: drivers look at all of a long text each time, and servers keep it. Its first
    line stays, by which it is known in the server's views.
    """
    text = (files(package) / "queries" / f"{name}.sql").read_text()
    title, *lines = (line.strip() for line in text.splitlines())
    code = (re.sub(r"(^|\s)--.*", "", line) for line in lines)
    return render("\n".join([title, *filter(None, code)]), **words)
