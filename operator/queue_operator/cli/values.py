"""How durations, times and tags are written on the command line."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from queue_operator.domain.durations import microseconds_of


def parse_duration(text: str) -> timedelta:
    """As every door reads it. Raises ValueError."""
    try:
        return timedelta(microseconds=microseconds_of(text))
    except OverflowError:
        raise ValueError(f"{text!r} is too long for a duration") from None


def parse_json(content: bytes, *, numbers_only: bool = True) -> Any:
    """What a document of JSON holds. Raises ValueError, which says what is wrong with it; NaN and
    Infinity may be let in by who knows better where they stand.
    """
    try:
        return json.loads(content, parse_constant=_no_number if numbers_only else None)
    except json.JSONDecodeError as error:
        raise ValueError(f"is no JSON: {error.msg} at {_place(content, error)}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8: {error.reason} at byte {error.start + 1}") from None
    except RecursionError:
        raise ValueError("is nested too deeply") from None


def _no_number(name: str) -> Any:
    raise ValueError(f"is no JSON: {name} is no number there")


def _place(content: bytes, error: json.JSONDecodeError) -> str:
    column = f"column {error.colno}"
    return f"line {error.lineno} {column}" if b"\n" in content.rstrip() else column


class Duration(click.ParamType[timedelta]):
    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        if isinstance(value, timedelta):
            return value
        try:
            return parse_duration(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class JobId(click.ParamType[str]):
    """Any text but none."""

    name = "job_id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if not text:
            self.fail("a job's id must not be empty", param, ctx)
        return text


class When(click.ParamType[datetime]):
    """A time or, unless `ago` is false, how long ago it was."""

    name = "time"

    def __init__(self, *, ago: bool = True) -> None:
        self._ago = ago

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        if isinstance(value, datetime):
            return value
        text = str(value)
        if self._ago:
            try:
                return datetime.now(UTC) - parse_duration(text)
            except (ValueError, OverflowError):
                pass
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            also = "2h (ago) or " if self._ago else ""
            self.fail(f"{text!r} is no time: write {also}2030-01-31T12:00:00Z", param, ctx)
        if found.tzinfo is None:
            self.fail(f"{text!r} has no zone: end it with Z, or an offset as +02:00", param, ctx)
        return found


class Tag(click.ParamType[tuple[str, str]]):
    """`key=value`, or a bare key."""

    name = "key=value"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        key, _, rest = str(value).partition("=")
        if not key:
            self.fail(f"{value!r} is no tag: write key=value", param, ctx)
        return key, rest


def tag_map(tags: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Raises UsageError when a key comes twice: a job has one value for each."""
    found: dict[str, str] = {}
    for key, value in tags:
        if found.setdefault(key, value) != value:
            raise click.UsageError(f"--tag {key}: given with two values, no job has both")
    return found
