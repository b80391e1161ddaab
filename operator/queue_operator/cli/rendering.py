"""Tables for people, JSON for programs."""

import codecs
import json
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pydantic import BaseModel
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from queue_operator.cli.listing import Listing
from queue_operator.client.models import ErrorInfo, FailureInfo
from queue_operator.domain.views import Phase

_UNWRAPPED: Final = 1000
_STYLES: Final = {
    Phase.RUNNING: "cyan",
    Phase.RETRYING: "yellow",
    Phase.COMPLETED: "green",
    Phase.FAILED: "red",
    Phase.DEAD_LETTER: "red",
    Phase.CANCELLED: "bright_black",
}


def console(*, stderr: bool = False) -> Console:
    """What tables are printed to. Into a pipe or file no line is wrapped."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _UNWRAPPED
    return Console(stderr=stderr, width=width, markup=False, highlight=False, emoji=False)


def progress(total: float | None, what: str) -> tuple[Progress, Any]:
    """A bar on standard error, which is not drawn where nobody looks, and its task."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    bar = Progress(
        *columns,
        TimeElapsedColumn(),
        console=console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    return bar, bar.add_task(what, total=total)


def print_json(value: Any) -> None:
    """One indented document."""
    print(json.dumps(fields_of(value), indent=2, ensure_ascii=not _holds_everything()))


def print_line(value: Any) -> None:
    """One document on one line."""
    is_ascii = not _holds_everything()
    text = json.dumps(fields_of(value), separators=(",", ":"), ensure_ascii=is_ascii)
    print(text, flush=True)


def _encoding() -> str:
    return getattr(sys.stdout, "encoding", None) or "utf-8"


def _holds_everything() -> bool:
    """Whether standard output takes any character; what it does not would be no JSON."""
    return codecs.lookup(_encoding()).name.startswith("utf")


def fields_of(value: Any) -> Any:
    """`value` as JSON has it; every field of a model is there, null where unknown."""
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else value


def table(*columns: str, expendable: Sequence[str] = (), elastic: Collection[str] = ()) -> Listing:
    """An empty table; a column whose name ends with # holds numbers."""
    made = Listing(expendable, elastic)
    for column in columns:
        name = column.removesuffix("#")
        is_text = name == column
        made.add_column(name, justify="left" if is_text else "right", no_wrap=name not in elastic)
    return made


def facts(pairs: Iterable[tuple[str, Any]]) -> Table:
    """Names and values, those without a value left out."""
    made = Table(box=None, pad_edge=False, show_header=False)
    made.add_column(style="bold", no_wrap=True)
    made.add_column()
    for name, value in pairs:
        if value not in (None, ""):
            made.add_row(name, value if isinstance(value, Text) else plain(value))
    return made


def plain(value: Any) -> str:
    """`value` as text in which nothing steers the terminal, and which it can show: jobs may hold
    anything.
    """
    text, encoding = str(value), _encoding()
    if text.isprintable() and _is_held(text, encoding):
        return text
    return "".join(_visible(char, encoding) for char in text)


def _visible(char: str, encoding: str) -> str:
    if (char.isprintable() or char in "\n\t") and _is_held(char, encoding):
        return char
    return char.encode("unicode_escape").decode("ascii")


def _is_held(text: str, encoding: str) -> bool:
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def state(phase: Phase, cancel_requested: bool = False) -> Text:
    """A job's state in its colour."""
    text = f"{phase.value} (cancel requested)" if cancel_requested else phase.value
    return Text(text, style=_STYLES.get(phase, ""))


def fault(error: ErrorInfo | FailureInfo) -> str:
    """What went wrong; a code that only repeats the category is left out."""
    named = dict.fromkeys((error.category.value, error.code))
    return f"{' '.join(named)}: {error.message}"


def number(value: float | None) -> str:
    """With thousands apart; "-" for none."""
    if value is None:
        return "-"
    if isinstance(value, int) or value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value else "0"


def tags(value: Mapping[str, str]) -> str:
    return plain(" ".join(f"{key}={text}" if text else key for key, text in value.items()))


def duration(value: timedelta | None) -> str:
    """The two largest units; "-" for none."""
    if value is None:
        return "-"
    seconds = value.total_seconds()
    if seconds < 1:
        return f"{seconds * 1000:.3g}ms"
    if seconds < 60:
        return f"{seconds:.3g}s"
    whole = round(seconds)
    for size, unit, less, small in (
        (86_400, "d", 3600, "h"),
        (3600, "h", 60, "m"),
        (60, "m", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // less
            return f"{whole // size}{unit}{rest}{small}" if rest else f"{whole // size}{unit}"
    return f"{whole}s"


def age(when: datetime | None, now: datetime | None = None) -> str:
    """How long ago, "-" for never. The clocks of two machines may differ a little."""
    if when is None:
        return "-"
    gone = (now or datetime.now(UTC)) - when
    if gone < timedelta(seconds=1):
        ahead = -gone
        return f"in {duration(ahead)}" if ahead > timedelta(seconds=1) else "now"
    return duration(timedelta(seconds=int(gone.total_seconds())))


def moment(when: datetime | None, now: datetime | None = None) -> str:
    """The time itself, and how long ago."""
    if when is None:
        return ""
    told = age(when, now)
    ago = told if told == "now" or told.startswith("in ") else f"{told} ago"
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC ({ago})"


def show(*parts: RenderableType, stderr: bool = False) -> None:
    """Prints tables and texts, without the blanks that columns end with."""
    screen = console(stderr=stderr)
    with screen.capture() as captured:
        for part in parts:
            screen.print(part)
    lines = captured.get().splitlines()
    print("\n".join(line.rstrip() for line in lines), file=sys.stderr if stderr else sys.stdout)


def print_rows(made: Table, empty: str) -> None:
    """The table; a word on standard error where it has no row."""
    if made.row_count:
        show(made)
    else:
        note(empty)


def note(text: str) -> None:
    """Something for people only, so that a pipe does not get it."""
    print(plain(text), file=sys.stderr)


def count(amount: int, noun: str, *, at_least: bool = False) -> str:
    """`1 job`, `2 jobs`, `10,000 or more jobs`."""
    more = " or more" if at_least else ""
    return f"{amount:,}{more} {noun}{'' if amount == 1 and not at_least else 's'}"


def spread(title: str, counted: Mapping[str, int], most: int = 10) -> Table | None:
    """How many of which, the most frequent first."""
    if not counted:
        return None
    made = table(title, "COUNT#")
    ordered: Sequence[tuple[str, int]] = sorted(
        counted.items(), key=lambda item: (-item[1], item[0])
    )
    for name, amount in ordered[:most]:
        made.add_row(plain(name) or "(none)", number(amount))
    if len(ordered) > most:
        made.add_row(f"{len(ordered) - most} others", number(sum(n for _, n in ordered[most:])))
    return made
