"""What takes more than one request, written once for both clients.

A flow yields what is to be done, a call or a pause, and is sent what came of it. It does
nothing itself.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Generic, TypeVar

from queue_operator.client import operations
from queue_operator.client.encoding import encode
from queue_operator.client.listening import Flow, Pause, Step
from queue_operator.client.models import (
    BatchResult,
    BulkResult,
    ItemError,
    QuotaError,
    SubmissionResult,
)
from queue_operator.client.operations import BulkCall, Which
from queue_operator.client.protocol import (
    Call,
    Operation,
    Reply,
    error_of,
    unreachable,
)
from queue_operator.client.requests import FailureFilter, JobFilter, Submission
from queue_operator.client.retrying import REFUSED, RetryPolicy
from queue_operator.domain.errors import InvalidArgument, QuotaExceeded

T = TypeVar("T")
B = TypeVar("B", bound=BulkResult)

MOST_REQUESTS: Final = 1000
"""Of one filter; each changes at most 10,000 jobs."""
IDS_AT_ONCE: Final = 1000
BATCH_JOBS: Final = 1000
BATCH_BYTES: Final = 8 * 1024 * 1024
"""How much payload one batch of `submit_all` holds at most; a server takes 16 MiB by default."""

REJECTED: Final = "REJECTED"
_WHOLE: Final = ("", "body", "jobs")
"""Fields of faults that are those of a request and not of a job in it."""


@dataclass(frozen=True, slots=True)
class QuotaWait:
    """A pause before jobs are sent again for which a quota had no room; `quota` is None where the
    server does not tell. `waited_s` is for how long nothing more got in, `tries` how often.
    """

    jobs: int
    seconds: float
    quota: QuotaError | None
    waited_s: float
    tries: int


class Run(Generic[T]):
    """A flow on its way; `result` is there at its end."""

    def __init__(self, flow: Flow[T]) -> None:
        self._flow = flow
        self.result: T

    def step(self, reply: Reply | None = None) -> Step | None:
        """What is to be done next, after what came of the step before; None at the end."""
        try:
            return next(self._flow) if reply is None else self._flow.send(reply)
        except StopIteration as end:
            self.result = end.value
            return None


def exchange(operation: Operation[T], policy: RetryPolicy) -> Flow[T]:
    """One operation, tried again as the policy says. Raises what its answer means, Unavailable
    when there is none.
    """
    call = operation.call
    tries = 0
    while True:
        tries += 1
        reply = yield call
        again = policy.again(tries, reply, is_repeatable=call.is_repeatable)
        if not again or _is_hopeless(call, reply):
            break
        pause_s = policy.pause_s(tries, reply.response)
        if policy.on_pause is not None:
            policy.on_pause(pause_s, reply.response)
        yield Pause(pause_s)
    if reply.response is None:
        raise unreachable(call, reply.failure) from reply.failure
    return operation.parse(reply.response, tries > 1)


def _is_hopeless(call: Call, reply: Reply) -> bool:
    if reply.response is None or reply.response.status_code != REFUSED:
        return False
    error = error_of(call, reply.response)
    return isinstance(error, QuotaExceeded) and error.is_hopeless_for(len(call.job_ids))


def submit_some(
    submissions: Sequence[Submission],
    namespace: str | None,
    policy: RetryPolicy,
    told: Callable[[QuotaWait], None] | None = None,
) -> Flow[BatchResult]:
    """A batch that is not atomic: what is wrong with one job keeps no other from being stored,
    also what no request can hold. Jobs for which a quota has no room now are sent again as the
    policy says, counted anew whenever some of them got in; `told` is given each pause.
    """
    results = yield from _each(submissions, namespace, policy)
    tries, waited_s = 1, 0.0
    while left := _over_quota(results):
        quota = _quota(results[left[0]])
        after = quota.retry_after if quota else None
        wanted_s = after.total_seconds() if after else 0.0
        if not policy.waits_for_quota(tries, wanted_s):
            break
        pause_s = max(policy.pause_s(tries, None), wanted_s)
        if told is not None:
            told(QuotaWait(len(left), pause_s, quota, waited_s, tries))
        yield Pause(pause_s)
        again = yield from _each([submissions[at] for at in left], namespace, policy)
        for at, item in zip(left, again, strict=True):
            results[at] = item
        got_in = any(item.status != REJECTED for item in again)
        tries, waited_s = (1, 0.0) if got_in else (tries + 1, waited_s + pause_s)
    rejected = sum(item.status == REJECTED for item in results)
    return BatchResult(
        total=len(results),
        accepted=len(results) - rejected,
        rejected=rejected,
        results=tuple(results),
    )


def _each(
    submissions: Sequence[Submission], namespace: str | None, policy: RetryPolicy
) -> Flow[list[SubmissionResult]]:
    """What became of each. A request that is refused as a whole, for its size or for what one of
    its jobs does to its form, is sent again by halves.
    """
    try:
        operation = operations.submit_batch(submissions, False, namespace)
    except InvalidArgument:
        faults = operations.faults(submissions)
        if not faults:
            raise
        return (yield from _others(submissions, faults, namespace, policy))
    try:
        result = yield from exchange(operation, policy)
    except InvalidArgument as error:
        if not any(fault.field in _WHOLE for fault in error.findings):
            raise
        if len(submissions) == 1:
            return [_rejected(submissions[0], str(error))]
    else:
        return list(result.results)
    middle = len(submissions) // 2
    first = yield from _each(submissions[:middle], namespace, policy)
    rest = yield from _each(submissions[middle:], namespace, policy)
    return [*first, *rest]


def _others(
    submissions: Sequence[Submission],
    faults: Mapping[int, InvalidArgument],
    namespace: str | None,
    policy: RetryPolicy,
) -> Flow[list[SubmissionResult]]:
    """What became of each, if only those without a fault are sent."""
    good = [one for at, one in enumerate(submissions) if at not in faults]
    sent = iter((yield from _each(good, namespace, policy)) if good else ())
    return [
        _rejected(one, str(faults[at])) if at in faults else next(sent)
        for at, one in enumerate(submissions)
    ]


def _rejected(submission: Submission, reason: str) -> SubmissionResult:
    error = ItemError(code=InvalidArgument.code, message=reason)
    return SubmissionResult(job_id=submission.job_id, status=REJECTED, error=error)


def _quota(item: SubmissionResult) -> QuotaError | None:
    return None if item.error is None else item.error.quota


def _over_quota(results: Sequence[SubmissionResult]) -> list[int]:
    """The places of those that may be stored later."""
    return [
        at
        for at, item in enumerate(results)
        if item.error is not None and item.error.code == QuotaExceeded.code
    ]


def change_all(
    call: BulkCall[B],
    job_ids: Iterable[str] | None,
    filter: JobFilter | FailureFilter | None,
    policy: RetryPolicy,
    told: Callable[[B], None] | None,
) -> Flow[B]:
    """A bulk operation on as many jobs as there are, in as many requests as it takes; `told`
    is given what came of each. It ends early when a request changed nothing, and after
    `MOST_REQUESTS`: jobs that are retried and fail again are found again.
    """
    if isinstance(job_ids, str) or (job_ids is None) == (filter is None):
        raise InvalidArgument("job_ids", "give a list of ids or a filter, one of the two")
    chunks = iter([Which(filter=filter)]) if job_ids is None else _chunks(job_ids)
    total: B | None = None
    for which in chunks:
        more, requests = True, 0
        while more and requests < MOST_REQUESTS:
            requests += 1
            result = yield from exchange(call(which), policy)
            total = result if total is None else _sum(total, result)
            if told is not None:
                told(result)
            more = which.filter is not None and result.has_more and result.changed > 0
            more = more and not result.dry_run
    if total is None:
        raise InvalidArgument("job_ids", "must not be empty")
    return total


def _chunks(job_ids: Iterable[str]) -> Iterator[Which]:
    left = iter(job_ids)
    while chunk := list(islice(left, IDS_AT_ONCE)):
        yield Which(job_ids=chunk)


def _sum(total: B, result: B) -> B:
    """Both together; what is left over is what the later one says."""
    numbers = {
        name: getattr(total, name) + getattr(result, name)
        for name in type(total).model_fields
        if name not in ("dry_run", "has_more")
    }
    return result.model_copy(update=numbers)


def batches(
    submissions: Iterable[Submission], size: int = BATCH_JOBS
) -> Iterator[Sequence[Submission]]:
    """`submissions` in batches that a server takes."""
    batch: list[Submission] = []
    held = 0
    for submission in submissions:
        weight = _weight(submission)
        if batch and (len(batch) >= size or held + weight > BATCH_BYTES):
            yield batch
            batch, held = [], 0
        batch.append(submission)
        held += weight
    if batch:
        yield batch


def _weight(submission: Submission) -> int:
    if submission.payload_bytes is not None:
        return len(submission.payload_bytes) * 4 // 3
    try:
        return len(encode(submission.payload))
    except InvalidArgument:
        return 0  # It is found, and rejected alone, when the batch is made.
