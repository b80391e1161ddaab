"""How verdicts put things: numbers, lengths of time, names, commands."""

import shlex
from collections.abc import Sequence
from typing import Final

_MOST_CHARACTERS: Final = 80


def span(seconds: float) -> str:
    """`40 s`, `5 min`, `3 h 20 min`, `2 d 4 h`."""
    whole = max(round(seconds), 0)
    for size, unit, less, small in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min")):
        if whole >= size:
            rest = whole % size // less
            return f"{whole // size} {unit} {rest} {small}" if rest else f"{whole // size} {unit}"
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"


def many(count: int, noun: str) -> str:
    """`1 job`, `2,000 jobs`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def listed(names: Sequence[str]) -> str:
    """The first, and how many others."""
    if len(names) <= 2:
        return " and ".join(map(text, names))
    return f"{text(names[0])} and {len(names) - 1:,} others"


def text(name: str) -> str:
    """A name that somebody chose, so that it stays within its sentence."""
    shown = name if name.isprintable() else ascii(name)[1:-1]
    return shown if len(shown) <= _MOST_CHARACTERS else f"{shown[:_MOST_CHARACTERS]}…"


def command(words: str, namespace: str) -> str:
    """A line for the shell."""
    return f"queue-operator {words} --namespace {shlex.quote(namespace)}"
