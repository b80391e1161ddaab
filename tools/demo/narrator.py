"""Tells what the demo does, and stops it at the first thing that is not as promised."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

console = Console(highlight=False, soft_wrap=True)


class DemoFailed(Exception):
    """Something was not as the demo says; the message tells what was expected and seen."""


@contextmanager
def chapter(title: str) -> Iterator[None]:
    """A heading, and how long it took."""
    console.rule(f"[bold]{title}", align="left")
    started = time.monotonic()
    yield
    console.print(f"[dim]{time.monotonic() - started:.1f} s[/]")


def say(text: str) -> None:
    console.print(text)


def check(promise: str, kept: bool, seen: object = "") -> None:
    """Prints the promise with a tick, or fails the demo with what was seen instead."""
    if not kept:
        raise DemoFailed(f"{promise}: not so; seen: {seen}")
    console.print(f"[green]✓[/] {promise}" + (f" [dim]({seen})[/]" if seen else ""))
