"""Tells what the demo does, and stops it at the first thing that is not as promised."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape

console = Console(highlight=False, soft_wrap=True)


class DemoFailed(Exception):
    """Something was not as the demo says; the message tells what was expected and seen."""


@contextmanager
def chapter(title: str) -> Iterator[None]:
    """A heading, and how long it took."""
    console.rule(f"[bold]{escape(title)}", align="left")
    started = time.monotonic()
    yield
    console.print(f"[dim]{time.monotonic() - started:.1f} s[/]")


def say(text: str) -> None:
    """Prints what others wrote as it is: brackets in it are no markup."""
    console.print(text, markup=False)


def check(promise: str, kept: bool, seen: object = "") -> None:
    """Prints the promise with a tick, or fails the demo with what was seen instead."""
    if not kept:
        raise DemoFailed(f"not so: {promise}\n  seen instead: {seen or 'nothing'}")
    note = f" [dim]({escape(str(seen))})[/]" if seen else ""
    console.print(f"[green]✓[/] {escape(promise)}{note}")


def give_up(reason: object, hint: str) -> None:
    """The last words of a demo that failed."""
    console.print(f"[red]✘[/] {escape(str(reason))}")
    console.print(hint, markup=False, style="dim")


def rejoice(text: str, took_s: float) -> None:
    """The last words of one that did not."""
    console.print(f"[bold green]{escape(text)}[/] [dim]{took_s:.0f} s in all[/]")
