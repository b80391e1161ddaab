"""Names of fields at doors that have others than the library: where durations carry their own unit,
its `delay_s` is their `delay`; in a submission its `id` is the `job_id`.
"""

import re
from collections.abc import Callable
from typing import Final, TypeVar

from queue_operator.domain.errors import InvalidArgument, QueueError

_NAMES: Final = "delay|delays|initial_delay|max_delay|lease_ttl|retry_after|timeout|time_range|ttl"
_NAMED: Final = re.compile(rf"(?<![a-z_])({_NAMES})_s(?=$|[\[.])")
_BARE: Final = re.compile(rf"(?<![a-z_])({_NAMES})(?=$|[\[.])")


E = TypeVar("E", bound=QueueError)


def without_unit(field: str) -> str:
    """`backoff.delays` of `backoff.delays_s`; other names are left as they are."""
    return _NAMED.sub(r"\1", field)


def with_unit(field: str) -> str:
    """`backoff.delays_s` of `backoff.delays`."""
    return _BARE.sub(r"\1_s", field)


_SUBMITTED: Final = (
    (re.compile(r"(^|\.)id$"), r"\1job_id"),
    (re.compile(r"(^|\.)dependency_mode$"), r"\1dependency_type"),
)


def in_submission(field: str) -> str:
    """The name of a job's field in a submission, as REST, spawn and the harness spell it."""
    for pattern, name in _SUBMITTED:
        field = pattern.sub(name, field)
    return without_unit(field)


def told(error: QueueError, spell: Callable[[str], str]) -> str:
    """The message of an error whose field is spelled so at a door."""
    if not isinstance(error, InvalidArgument):
        return error.message
    return spell(error.field) + error.message.removeprefix(error.field)


def respelled(error: E, spell: Callable[[str], str]) -> E:
    """The error itself, with the field and the message of a door."""
    if isinstance(error, InvalidArgument):
        error.args = (told(error, spell),)
        error.field = spell(error.field)
    return error
