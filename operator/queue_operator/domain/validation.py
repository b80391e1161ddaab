"""What a submission must look like, whichever door it comes through."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from typing import Final

from queue_operator.domain.errors import DuplicateJob, InvalidArgument, PayloadTooLarge
from queue_operator.domain.job import Job
from queue_operator.domain.retry import Backoff, BackoffStrategy
from queue_operator.domain.states import JobState

_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
_JSON_STRINGS: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKETS: Final = re.compile(rb"[\[\]{}]")
MAX_ATTEMPTS_BOUND: Final = 100
MAX_JSON_DEPTH: Final = 100
MAX_DURATION_S: Final = 100 * 365 * 86_400.0
"""A century. Longer ones overflow timestamps and timers of stores and workers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Sizes: bytes for payloads, characters for texts, entries for collections."""

    payload_bytes: int = 1024 * 1024
    result_bytes: int = 1024 * 1024
    tags: int = 32
    tag_characters: int = 128
    id_characters: int = 255


DEFAULT_LIMITS: Final = Limits()


def check_text(field: str, value: object, limit: int, *, required: bool = True) -> None:
    """Raises InvalidArgument unless `value` is a string that every store can hold."""
    if not isinstance(value, str):
        raise InvalidArgument(field, f"must be a string, not {type(value).__name__}")
    if required and not value:
        raise InvalidArgument(field, "must not be empty")
    if len(value) > limit:
        raise InvalidArgument(field, f"has {len(value)} characters; the limit is {limit}")
    if _UNSTORABLE.search(value):
        raise InvalidArgument(field, "must not contain NUL characters or lone surrogates")


def check_tags(field: str, tags: object, limits: Limits = DEFAULT_LIMITS) -> None:
    """Raises InvalidArgument for too many tags, or a tag that is empty or too long."""
    if isinstance(tags, str) or not hasattr(tags, "__iter__"):
        raise InvalidArgument(field, "must be a collection of strings")
    listed = list(tags)
    if len(listed) > limits.tags:
        raise InvalidArgument(field, f"has {len(listed)} entries; the limit is {limits.tags}")
    for tag in listed:
        check_text(field, tag, limits.tag_characters)


def check_bytes(field: str, value: object, limit: int) -> None:
    """Raises InvalidArgument unless `value` is bytes within the limit."""
    if not isinstance(value, bytes):
        raise InvalidArgument(field, f"must be bytes, not {type(value).__name__}")
    if len(value) > limit:
        raise PayloadTooLarge(field, len(value), limit)


def check_json_depth(field: str, text: bytes, limit: int = MAX_JSON_DEPTH) -> None:
    """Raises InvalidArgument when the JSON document nests arrays and objects deeper."""
    if text.count(b"[") + text.count(b"{") <= limit:
        return
    depth = 0
    for bracket in _BRACKETS.findall(_JSON_STRINGS.sub(b"", text)):
        depth += 1 if bracket in b"[{" else -1
        if depth > limit:
            raise InvalidArgument(field, f"is nested deeper than {limit} levels")


def check_positive(field: str, value: float) -> None:
    """Raises InvalidArgument unless `value` is a number above zero."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise InvalidArgument(field, f"must be greater than 0, not {value!r}")


def check_job(job: Job, limits: Limits = DEFAULT_LIMITS) -> None:
    """Raises InvalidArgument for the first field of a submission that is wrong."""
    check_text("id", job.id, limits.id_characters)
    check_text("type", job.type, limits.id_characters)
    check_text("namespace", job.namespace, limits.id_characters)
    check_text("correlation_id", job.correlation_id, limits.id_characters, required=False)
    check_text("content_type", job.content_type, limits.id_characters)
    check_bytes("payload", job.payload, limits.payload_bytes)
    check_tags("tags", job.tags, limits)
    _check_timing(job)
    if job.backoff is not None:
        check_backoff(job.backoff)
    _check_untouched(job)


def check_duration(field: str, seconds: float) -> None:
    """Raises InvalidArgument unless it is 0 s to a century."""
    if not 0 <= seconds <= MAX_DURATION_S:
        raise InvalidArgument(field, "must be 0 seconds or more, and at most 100 years")


def check_backoff(backoff: Backoff) -> None:
    """Raises InvalidArgument for a delay that is negative or over a century, a multiplier
    below 1, or a CUSTOM strategy without delays (or delays without CUSTOM).
    """
    named = {
        "backoff.initial_delay": backoff.initial_delay_s,
        "backoff.max_delay": backoff.max_delay_s,
        **{f"backoff.delays[{n}]": delay for n, delay in enumerate(backoff.delays_s)},
    }
    for field, delay in named.items():
        check_duration(field, delay)
    if not 1 <= backoff.multiplier < inf:
        raise InvalidArgument("backoff.multiplier", "must be 1 or more")
    if (backoff.strategy is BackoffStrategy.CUSTOM) != bool(backoff.delays_s):
        raise InvalidArgument("backoff.delays", "belongs to the strategy CUSTOM, and only to it")


def check_time(field: str, at: datetime | None) -> None:
    """Raises InvalidArgument for a naive time, and for one that no store could give back."""
    if at is None:
        return
    if at.tzinfo is None:
        raise InvalidArgument(field, "must carry a time zone")
    try:
        at.astimezone(UTC)
    except OverflowError:
        raise InvalidArgument(field, "must be within the years 1 to 9999, in UTC") from None


def _check_timing(job: Job) -> None:
    if job.delay_s is not None and job.scheduled_at is not None:
        raise InvalidArgument("delay", "give either delay or scheduled_at, not both")
    if job.delay_s is not None:
        check_duration("delay", job.delay_s)
    for field in ("created_at", "scheduled_at"):
        check_time(field, getattr(job, field))
    if job.timeout_s is not None:
        check_positive("timeout", job.timeout_s)
        check_duration("timeout", job.timeout_s)
    if job.max_attempts is not None and not 0 <= job.max_attempts <= MAX_ATTEMPTS_BOUND:
        raise InvalidArgument("max_attempts", f"must be 1 to {MAX_ATTEMPTS_BOUND}")


def _check_untouched(job: Job) -> None:
    if job.state is not JobState.INITIAL_PENDING:
        raise InvalidArgument("state", f"a new job is {JobState.INITIAL_PENDING}, not {job.state}")
    for field in ("assignee_id", "assigned_at", "started_at", "finalized_at", "result", "error"):
        if getattr(job, field):
            raise InvalidArgument(field, "must not be set on a new job")


def check_batch(jobs: Sequence[Job], limits: Limits = DEFAULT_LIMITS) -> None:
    """`check_job` for each, with the index in the field's name, and no id twice."""
    first_at: dict[tuple[str, str], int] = {}
    repeats: dict[int, str] = {}
    for index, job in enumerate(jobs):
        try:
            check_job(job, limits)
        except PayloadTooLarge as error:
            raise PayloadTooLarge(f"jobs[{index}].{error.field}", error.size, error.limit) from None
        except InvalidArgument as error:
            raise InvalidArgument(f"jobs[{index}].{error.field}", error.reason) from None
        if first_at.setdefault((job.namespace, job.id), index) != index:
            repeats[index] = job.id
    if repeats:
        raise DuplicateJob(tuple(repeats.values()), tuple(repeats))
