"""What no message can hold is refused before it is sent, as the queue itself would refuse it.

Sizes are the server's to judge: it knows its limits.
"""

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from queue_operator.domain.batch import check_batch
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.job import Job
from queue_operator.domain.tags import from_map
from queue_operator.domain.validation import (
    Limits,
    check_bytes,
    check_job,
    check_limit,
    check_text,
    check_texts,
    check_ttl,
)
from queue_operator.domain.views import Phase
from queue_operator.wire.v1 import queue_pb2 as pb

_ANY: Final = sys.maxsize
_NO_LIMITS: Final = Limits(
    payload_bytes=_ANY,
    result_bytes=_ANY,
    checkpoint_bytes=_ANY,
    tags=_ANY,
    tag_characters=_ANY,
    id_characters=_ANY,
    dependencies=_ANY,
    error_characters=_ANY,
    stack_characters=_ANY,
)
_MAX_COUNT: Final = 2**62


def address(value: object) -> None:
    """Raises InvalidArgument, as do all of these."""
    wrong = not isinstance(value, str) or value.startswith(("http:", "https:"))
    if wrong or ":" not in str(value):
        raise InvalidArgument(
            "address", f"{value!r} must be host:port of the gRPC port, as in localhost:50051"
        )


def job(value: Job) -> None:
    """Any job that is one."""
    check_job(value, _NO_LIMITS)


def jobs(values: Sequence[Job]) -> None:
    """A batch, in which an id may be given once."""
    check_batch(values, _NO_LIMITS)


def text(field: str, value: object, *, required: bool = True) -> None:
    """A text of any length."""
    check_text(field, value, _ANY, required=required)


def token(value: str | None) -> None:
    """A token that is none of ours is for the server to refuse."""
    if value is not None:
        check_text("token", value, _ANY, required=False)


def texts(field: str, values: Collection[str]) -> list[str]:
    """The entries, once they are known to be texts."""
    check_texts(field, values, _ANY)
    return list(values)


def watch(
    job_id: str | None,
    types: Iterable[str],
    states: Iterable[Phase],
    tags: Mapping[str, str] | None,
    after: str | None,
    *,
    goes_on: bool,
) -> pb.WatchJobsRequest:
    """What is to be watched: one job, or what meets a filter."""
    named = texts("types", types if isinstance(types, str) else list(types))
    labels = sorted(from_map(tags or {}))
    texts("tags", labels)
    try:
        phases = [Phase(state).value for state in states]
    except ValueError as error:
        raise InvalidArgument("states", str(error)) from None
    text("after", after or "", required=False)
    if job_id is not None:
        text("job_id", job_id)
        if named or labels or phases:
            raise InvalidArgument("job_id", "cannot be combined with other filters")
    return pb.WatchJobsRequest(
        job_ids=[] if job_id is None else [job_id],
        types=named,
        tags=labels,
        statuses=phases,
        after=after or "",
        goes_on=goes_on,
    )


def data(field: str, value: object) -> None:
    """Bytes of any length."""
    check_bytes(field, value, _ANY)


def count(field: str, value: object) -> None:
    """A whole number above zero."""
    check_limit(field, value, _MAX_COUNT)


def ttl(field: str, seconds: object) -> None:
    """A duration above zero."""
    check_ttl(field, seconds)
