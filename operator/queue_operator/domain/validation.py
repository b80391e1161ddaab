"""What a submission must look like, whichever door it comes through."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence, Set, Sized
from dataclasses import MISSING, fields
from datetime import UTC, datetime, timedelta
from enum import Enum
from math import inf
from operator import attrgetter, is_
from typing import Any, Final, TypeGuard

from queue_operator.domain.callbacks import check_callback_url
from queue_operator.domain.dependencies import DependencyMode
from queue_operator.domain.errors import InvalidArgument, PayloadTooLarge
from queue_operator.domain.job import Demand, Job, Progress, ResourceRef, TypeDefaults
from queue_operator.domain.lease import Held

# Those who check know the limits from here.
from queue_operator.domain.limits import DEFAULT_LIMITS as DEFAULT_LIMITS
from queue_operator.domain.limits import MAX_ATTEMPTS_BOUND as MAX_ATTEMPTS_BOUND
from queue_operator.domain.limits import (
    MAX_CAPACITY,
    MAX_DELAYS,
    MAX_ID_CHARACTERS,
    MAX_MULTIPLIER,
    MAX_TAG_CHARACTERS,
    TAG_COSTS_BYTES,
    TAGS_BYTES,
)
from queue_operator.domain.limits import MAX_DURATION_S as MAX_DURATION_S
from queue_operator.domain.limits import MAX_JSON_DEPTH as MAX_JSON_DEPTH
from queue_operator.domain.limits import MAX_LIMIT as MAX_LIMIT
from queue_operator.domain.limits import NAME_CHARACTERS as NAME_CHARACTERS
from queue_operator.domain.limits import REASON_CHARACTERS as REASON_CHARACTERS
from queue_operator.domain.limits import Limits as Limits
from queue_operator.domain.ordering import Priority
from queue_operator.domain.retry import DEFAULT_MAX_ATTEMPTS, Backoff, BackoffStrategy
from queue_operator.domain.running import LogLine
from queue_operator.domain.traces import check_trace

_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
_SURROGATES: Final = re.compile("[\ud800-\udfff]")
_JSON_STRINGS: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKETS: Final = re.compile(rb"[\[\]{}]")
_CHARACTER_BYTES: Final = 4
"""The most that a character takes."""
_MAX_GENERATION: Final = 2**63 - 1
_MAX_LINE: Final = 2**63 - 1
# A priority moves a job's place in the order by a day, and no store knows a year 0 or 10000.
_EARLIEST: Final = datetime(2, 1, 1, tzinfo=UTC)
_LATEST: Final = datetime(9998, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)


def check_text(field: str, value: object, limit: int, *, required: bool = True) -> None:
    """Raises InvalidArgument unless `value` is a string that every store can hold."""
    # Most are short and plain, and this is asked for every job.
    if type(value) is str and 0 < len(value) <= limit and value.isprintable():
        return
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
    # Before each is looked at: there may be millions.
    if isinstance(tags, Sized) and len(tags) > limits.tags and _is_collection(tags):
        raise InvalidArgument(field, f"has {len(tags)} entries; the limit is {limits.tags}")
    check_texts(field, tags, limits.tag_characters)


def _is_collection(values: object) -> TypeGuard[Collection[object]]:
    return isinstance(values, Set | Sequence) and not isinstance(values, str | bytes)


_NUMBERS: Final = 2**63
# Asking an abstract type takes ten times as long.
_USUAL: Final = (frozenset, list, tuple, set)


def check_texts(field: str, values: object, limit: int) -> None:
    """Raises InvalidArgument unless `values` is a set or sequence of strings, none empty."""
    # An iterator would be used up by this check, and an empty filter lets everything through.
    if not isinstance(values, _USUAL) and not _is_collection(values):
        raise InvalidArgument(field, "must be a set or a sequence of strings")
    for value in values:
        check_text(field, value, limit)


def check_numbers(field: str, values: object) -> None:
    """Raises InvalidArgument unless `values` is a set or sequence of numbers that count rows."""
    if not _is_collection(values):
        raise InvalidArgument(field, "must be a set or a sequence of whole numbers")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _NUMBERS:
            raise InvalidArgument(field, "must be whole numbers, 0 or more")


def check_pairs(field: str, values: object) -> None:
    """Raises InvalidArgument unless `values` is a set or sequence of pairs."""
    pairs = _is_collection(values) and all(isinstance(v, tuple) and len(v) == 2 for v in values)
    if not pairs:
        raise InvalidArgument(field, "must be a set or a sequence of pairs")


def check_sequence(field: str, values: object) -> None:
    """Raises InvalidArgument unless `values` is a sequence, and no text."""
    if isinstance(values, str | bytes) or not isinstance(values, Sequence):
        raise InvalidArgument(field, f"must be a sequence, not {type(values).__name__}")


def check_kind(field: str, value: object, kind: type[object]) -> None:
    """Raises InvalidArgument unless `value` is a `kind`."""
    if not isinstance(value, kind):
        raise InvalidArgument(field, f"must be a {kind.__name__}, not {type(value).__name__}")


def check_flag(field: str, value: object) -> None:
    """Raises InvalidArgument unless `value` is True or False: any text would count as True."""
    if not isinstance(value, bool):
        raise InvalidArgument(field, f"must be True or False, not {type(value).__name__}")


def check_count(field: str, value: object, maximum: int = MAX_LIMIT) -> None:
    """Raises InvalidArgument unless `value` is a whole number from 0 to `maximum`."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= maximum:
        raise InvalidArgument(field, f"must be a whole number from 0 to {maximum}")


def check_choice(field: str, value: object, choices: type[Enum]) -> None:
    """Raises InvalidArgument unless `value` is one of `choices`: a member, and not its name."""
    if isinstance(value, choices):
        return
    member = next(
        (c for c in choices if isinstance(value, str) and value in (c.value, c.name)), None
    )
    if member is not None:
        given = f"{choices.__name__}.{member.name}"
        raise InvalidArgument(field, f"must be the member {given}, not the text {value!r}")
    names = ", ".join(c.value for c in choices)
    raise InvalidArgument(field, f"must be one of {names} (members of {choices.__name__})")


def check_choices(field: str, values: object, choices: type[Enum]) -> None:
    """Raises InvalidArgument unless `values` is a set or sequence of `choices`."""
    if not _is_collection(values):
        raise InvalidArgument(field, "must be a set or a sequence")
    for value in values:
        check_choice(field, value, choices)


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


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_seconds(field: str, value: object) -> None:
    """Raises InvalidArgument unless `value` is a number."""
    if _is_number(value):
        return
    hint = ": give its total_seconds()" if isinstance(value, timedelta) else ""
    kind = type(value).__name__
    raise InvalidArgument(field, f"must be a number of seconds, not {kind}{hint}")


def check_positive(field: str, seconds: object) -> None:
    """Raises InvalidArgument unless it is a finite number of seconds above zero."""
    check_seconds(field, seconds)
    if not 0 < seconds < inf:  # type: ignore[operator]
        raise InvalidArgument(field, "must be more than 0 seconds")


def check_duration(field: str, seconds: object) -> None:
    """Raises InvalidArgument unless it is 0 s to a century."""
    check_seconds(field, seconds)
    if not 0 <= seconds <= MAX_DURATION_S:  # type: ignore[operator]
        raise InvalidArgument(field, "must be 0 seconds or more, and at most 100 years")


def check_ttl(field: str, seconds: object) -> None:
    """Raises InvalidArgument unless it is more than 0 s and at most a century."""
    check_positive(field, seconds)
    check_duration(field, seconds)


def check_limit(field: str, value: object, maximum: int = MAX_LIMIT) -> None:
    """Raises InvalidArgument unless `value` is a whole number from 1 to `maximum`."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= maximum:
        raise InvalidArgument(field, f"must be a whole number from 1 to {maximum}")


def check_capacity(field: str, value: object) -> None:
    """Raises InvalidArgument unless it is a number of jobs that a worker can run at a time."""
    check_limit(field, value, MAX_CAPACITY)


def check_limits(limits: Limits) -> None:
    """Raises InvalidArgument for one that lets in what an index of a store does not take."""
    check_kind("limits", limits, Limits)
    check_limit("limits.id_characters", limits.id_characters, MAX_ID_CHARACTERS)
    check_limit("limits.tag_characters", limits.tag_characters, MAX_TAG_CHARACTERS)


def check_job(job: Job, limits: Limits = DEFAULT_LIMITS) -> None:
    """Raises InvalidArgument for the first field of a submission that is wrong."""
    if not isinstance(job, Job):
        raise InvalidArgument("job", f"must be a Job, not {type(job).__name__}")
    check_text("id", job.id, limits.id_characters)
    check_text("type", job.type, limits.id_characters)
    check_text("namespace", job.namespace, limits.id_characters)
    check_text("correlation_id", job.correlation_id, limits.id_characters, required=False)
    check_text("content_type", job.content_type, limits.id_characters)
    check_text("idempotency_key", job.idempotency_key, limits.id_characters, required=False)
    _check_dependencies(job, limits)
    check_bytes("payload", job.payload, limits.payload_bytes)
    _check_labels(job, limits)
    check_choice("priority", job.priority, Priority)
    _check_timing(job)
    if job.max_attempts is not None:
        check_max_attempts("max_attempts", job.max_attempts)
    if job.backoff is not None:
        check_backoff(job.backoff)
    if job.resource is not None:
        _check_resource(job.resource, limits)
    if job.callback_url != "":
        check_callback_url("callback_url", job.callback_url, limits.callbacks)
    check_flag("suspended", job.suspended)
    if job.traceparent != "" or job.tracestate != "":
        check_trace(job.traceparent, job.tracestate)
    _check_untouched(job)


def _check_labels(job: Job, limits: Limits) -> None:
    if not isinstance(job.tags, frozenset):
        raise InvalidArgument("tags", "must be a frozenset of strings")
    # Most are short and plain even together, and this is asked for every job.
    if set(map(type, job.tags)) == {str} and "" not in job.tags and len(job.tags) <= limits.tags:
        together = "".join(job.tags)
        most = _CHARACTER_BYTES * len(together) + TAG_COSTS_BYTES * len(job.tags)
        short = len(together) <= limits.tag_characters and most <= TAGS_BYTES
        if short and together.isprintable():
            return
    check_tags("tags", job.tags, limits)
    size = sum(len(tag.encode()) + TAG_COSTS_BYTES for tag in job.tags)
    if size > TAGS_BYTES:
        raise InvalidArgument(
            "tags",
            f"take {size} bytes together, {TAG_COSTS_BYTES} more than its text for each; "
            f"the limit is {TAGS_BYTES}",
        )


def _check_dependencies(job: Job, limits: Limits) -> None:
    check_choice("dependency_mode", job.dependency_mode, DependencyMode)
    if not job.depends_on and isinstance(job.depends_on, tuple):
        return
    check_sequence("depends_on", job.depends_on)
    count = len(job.depends_on)
    if count > limits.dependencies:
        raise InvalidArgument(
            "depends_on", f"has {count} entries; the limit is {limits.dependencies}"
        )
    for place, parent in enumerate(job.depends_on):
        check_text(f"depends_on[{place}]", parent, limits.id_characters)
        if parent == job.id:
            raise InvalidArgument(f"depends_on[{place}]", "a job cannot wait for itself")
    if len(set(job.depends_on)) < count:
        raise InvalidArgument("depends_on", "names a job twice")


def check_backoff(backoff: Backoff) -> None:
    """Raises InvalidArgument for a delay that is negative or over a century, a multiplier out of
    bounds, or a CUSTOM strategy without delays (or delays without CUSTOM).
    """
    if not isinstance(backoff, Backoff):
        raise InvalidArgument("backoff", f"must be a Backoff, not {type(backoff).__name__}")
    check_choice("backoff.strategy", backoff.strategy, BackoffStrategy)
    if not isinstance(backoff.delays_s, tuple):
        raise InvalidArgument("backoff.delays_s", "must be a tuple of seconds")
    check_duration("backoff.initial_delay_s", backoff.initial_delay_s)
    check_duration("backoff.max_delay_s", backoff.max_delay_s)
    if len(backoff.delays_s) > MAX_DELAYS:
        reason = f"has {len(backoff.delays_s)} entries; the limit is {MAX_DELAYS}"
        raise InvalidArgument("backoff.delays_s", reason)
    for n, delay in enumerate(backoff.delays_s):
        check_duration(f"backoff.delays_s[{n}]", delay)
    if not _is_number(backoff.multiplier) or not 1 <= backoff.multiplier <= MAX_MULTIPLIER:
        raise InvalidArgument("backoff.multiplier", f"must be 1 to {MAX_MULTIPLIER:g}")
    if (backoff.strategy is BackoffStrategy.CUSTOM) != bool(backoff.delays_s):
        raise InvalidArgument("backoff.delays_s", "belongs to the strategy CUSTOM, and only to it")


def check_time(field: str, at: datetime | None) -> None:
    """Raises InvalidArgument for a naive time, and for one that no store could give back."""
    if at is None:
        return
    if not isinstance(at, datetime):
        raise InvalidArgument(field, f"must be a datetime, not {type(at).__name__}")
    if at.utcoffset() is None:
        raise InvalidArgument(field, "must carry a time zone")
    # Compared, not converted: next to the ends of the calendar that would overflow.
    if not _EARLIEST <= at <= _LATEST:
        raise InvalidArgument(field, "must be within the years 2 to 9998, in UTC")


def _check_timing(job: Job) -> None:
    if job.delay_s is not None and job.scheduled_at is not None:
        raise InvalidArgument("delay_s", "give either delay or scheduled_at, not both")
    if job.delay_s is not None:
        check_duration("delay_s", job.delay_s)
    for field in ("created_at", "scheduled_at"):
        check_time(field, getattr(job, field))
    if job.timeout_s is not None:
        check_ttl("timeout_s", job.timeout_s)


def check_max_attempts(field: str, value: object) -> None:
    """Raises InvalidArgument unless it is a whole number up to the bound; 0 is unresolved."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int)
        or not 0 <= value <= MAX_ATTEMPTS_BOUND
    ):
        raise InvalidArgument(
            field,
            f"must be 1 to {MAX_ATTEMPTS_BOUND}, or 0 for what the handler says, else "
            f"{DEFAULT_MAX_ATTEMPTS}",
        )


def _check_resource(resource: ResourceRef, limits: Limits) -> None:
    if not isinstance(resource, ResourceRef):
        raise InvalidArgument("resource", f"must be a ResourceRef, not {type(resource).__name__}")
    for name in ("cluster_uid", "uid", "name"):
        check_text(f"resource.{name}", getattr(resource, name), limits.id_characters)
    check_limit("resource.generation", resource.generation, _MAX_GENERATION)


def check_demand(demand: Demand, limits: Limits = DEFAULT_LIMITS) -> None:
    """Raises InvalidArgument for the first field of a claim's demand that is wrong."""
    if not isinstance(demand, Demand):
        raise InvalidArgument("demands", f"must be of Demand, not {type(demand).__name__}")
    check_text("assignee_id", demand.assignee_id, limits.id_characters)
    check_limit("limit", demand.limit)
    check_text("namespace", demand.namespace, limits.id_characters)
    for field in ("tags", "types"):
        if not isinstance(getattr(demand, field), frozenset):
            raise InvalidArgument(field, "must be a frozenset of strings")
    check_tags("tags", demand.tags, limits)
    check_texts("types", demand.types, limits.id_characters)
    for field in ("worker_name", "host"):
        check_text(field, getattr(demand, field), limits.id_characters, required=False)


def check_defaults(defaults: Mapping[str, TypeDefaults]) -> None:
    """Raises InvalidArgument for a registration that no job could take its options from."""
    check_kind("defaults", defaults, Mapping)
    for name, of_type in defaults.items():
        check_kind("defaults", name, str)
        if not isinstance(of_type, TypeDefaults):
            raise InvalidArgument("defaults", f"must be TypeDefaults, not {type(of_type).__name__}")
        if of_type.max_attempts is not None:
            check_max_attempts("defaults.max_attempts", of_type.max_attempts)
        if of_type.timeout_s is not None:
            check_ttl("defaults.timeout_s", of_type.timeout_s)


def check_held(
    place: int, held: Held, limits: Limits = DEFAULT_LIMITS, among: str = "held"
) -> None:
    """Raises InvalidArgument for what cannot be a job that a worker holds."""
    if not isinstance(held, Held):
        raise InvalidArgument(f"{among}[{place}]", f"must be a Held, not {type(held).__name__}")
    for field in ("job_id", "namespace"):
        check_text(f"{among}[{place}].{field}", getattr(held, field), limits.id_characters)
    check_token(f"{among}[{place}].token", held.token)


def check_token(field: str, token: object, *, required: bool = True) -> None:
    """Raises InvalidArgument unless it is a string. One that no job ever has is a stale token."""
    if (required or token is not None) and not isinstance(token, str):
        raise InvalidArgument(field, f"must be a string, not {type(token).__name__}")


def check_lines(field: str, lines: object) -> None:
    """Raises InvalidArgument unless they are what a log can keep."""
    check_sequence(field, lines)
    for place, line in enumerate(lines):  # type: ignore[arg-type, var-annotated]
        name = f"{field}[{place}]"
        check_kind(name, line, LogLine)
        check_limit(f"{name}.number", line.number, _MAX_LINE)
        if line.at is None:
            raise InvalidArgument(f"{name}.at", "is required")
        check_time(f"{name}.at", line.at)
        for text in ("level", "message", "fields"):
            _check_logged(f"{name}.{text}", getattr(line, text))


def _check_logged(field: str, text: object) -> None:
    """What handlers print has control characters, and stays as it is."""
    if not isinstance(text, str):
        raise InvalidArgument(field, f"must be a string, not {type(text).__name__}")
    if _SURROGATES.search(text):
        raise InvalidArgument(field, "must not contain lone surrogates")


def check_progress(field: str, progress: Progress) -> None:
    """Raises InvalidArgument for what no view could show. What the message may not hold is left
    out where it is stored.
    """
    if not isinstance(progress, Progress):
        raise InvalidArgument(field, f"must be a Progress, not {type(progress).__name__}")
    percent = progress.percent
    if isinstance(percent, bool) or not isinstance(percent, int) or not 0 <= percent <= 100:
        raise InvalidArgument(f"{field}.percent", "must be a whole number from 0 to 100")
    if not isinstance(progress.message, str):
        raise InvalidArgument(f"{field}.message", "must be a string")
    if progress.updated_at is None:
        raise InvalidArgument(f"{field}.updated_at", "is required")
    check_time(f"{field}.updated_at", progress.updated_at)


# Everything from the state on is what the queue writes, not what a submitter may.
_WRITTEN: Final[dict[str, Any]] = {
    field.name: field.default
    for field in fields(Job)[[field.name for field in fields(Job)].index("state") :]
    if field.default is not MISSING
}
_UNSET: Final = tuple(_WRITTEN.values())
_read_written = attrgetter(*_WRITTEN)


def _check_untouched(job: Job) -> None:
    if _read_written(job) == _UNSET:
        return
    name = next(name for name, unset in _WRITTEN.items() if getattr(job, name) != unset)
    raise InvalidArgument(name, f"is the queue's to set; a new job has {_WRITTEN[name]!r}")


# The jobs of a batch are often alike but for these.
_read_common = attrgetter(
    *(f.name for f in fields(Job) if f.name not in {"id", "payload", "tags", *_WRITTEN})
)


def check_in_turn(limits: Limits) -> Callable[[Job], None]:
    """`check_job` for one job after another: what is the very same object as in the job before
    is not looked at twice.
    """
    last: tuple[Any, ...] = ()
    last_tags: object = None

    def check(job: Job) -> None:
        nonlocal last, last_tags
        common = _read_common(job) if isinstance(job, Job) else ()
        if common and last and all(map(is_, common, last)) and not job.depends_on:
            check_text("id", job.id, limits.id_characters)
            check_bytes("payload", job.payload, limits.payload_bytes)
            if job.tags is not last_tags:
                _check_labels(job, limits)
            _check_untouched(job)
        else:
            check_job(job, limits)
        last, last_tags = common, job.tags

    return check
