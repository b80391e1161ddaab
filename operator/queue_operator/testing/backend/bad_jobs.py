"""A job that is wrong is refused with the name of its field, and nothing is written."""

import random
import string
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from queue_operator.domain.errors import InvalidArgument, PayloadTooLarge
from queue_operator.domain.job import Job, Progress, ResourceRef
from queue_operator.domain.outcome import ErrorInfo
from queue_operator.domain.retry import Backoff, BackoffStrategy
from queue_operator.domain.states import JobState
from queue_operator.domain.validation import Limits
from queue_operator.testing.clauses import proves
from queue_operator.testing.store import Contract, Store
from queue_operator.testing.wrong import DELAYS, INF, NAN, TEN_KB, TIMES, UNSTORABLE

_GOOD: Final = Job(id="x", type="t")
_NOW: Final = datetime(2024, 1, 1, tzinfo=UTC)

_WRONG: Final[dict[str, tuple[Any, ...]]] = {
    "id": UNSTORABLE,
    "type": UNSTORABLE,
    "namespace": UNSTORABLE,
    "content_type": UNSTORABLE,
    "payload": ("text", None, bytearray(b"x"), memoryview(b"x")),
    "tags": (
        "tag",
        None,
        ["a"],
        {"a": "b"},
        frozenset({""}),
        frozenset({7}),
        frozenset({"a\x00"}),
        frozenset({"x" * 129}),
        frozenset({f"t{n}" for n in range(33)}),
        frozenset({f"{n:0128}" for n in range(19)}),
        frozenset({chr(0x1F600 + n) * 128 for n in range(5)}),
    ),
    "priority": ("HIGH", None, 1),
    "created_at": TIMES,
    "scheduled_at": TIMES,
    "delay_s": DELAYS,
    "timeout_s": (0, 0.0, *DELAYS),
    "max_attempts": (-1, 101, 1.5, "3", True, NAN, 10**400),
    "correlation_id": UNSTORABLE[1:],
    "idempotency_key": UNSTORABLE[1:],
    "depends_on": ("a", None, {"a"}, ("a", "a"), tuple(map(str, range(1001)))),
    "depends_on[0]": (("",), ("a\x00",), (7,), (TEN_KB,), ("x",)),
    "dependency_mode": ("AFTER", None),
    "backoff": ("CONSTANT", {}),
    "backoff.strategy": (Backoff("CONSTANT"),),  # type: ignore[arg-type]
    "backoff.initial_delay_s": tuple(Backoff(initial_delay_s=d) for d in DELAYS),  # type: ignore[arg-type]
    "backoff.max_delay_s": tuple(Backoff(max_delay_s=d) for d in DELAYS),  # type: ignore[arg-type]
    "backoff.multiplier": tuple(Backoff(multiplier=m) for m in (0.5, 0, INF, NAN, "2", True)),  # type: ignore[arg-type]
    "backoff.delays_s": (
        Backoff(BackoffStrategy.CUSTOM),
        Backoff(delays_s=(1.0,)),
        Backoff(BackoffStrategy.CUSTOM, delays_s=[1.0]),  # type: ignore[arg-type]
    ),
    "backoff.delays_s[1]": tuple(
        Backoff(BackoffStrategy.CUSTOM, delays_s=(1.0, delay))  # type: ignore[arg-type]
        for delay in DELAYS
    ),
    "resource": ("uid", {}),
    "resource.uid": (ResourceRef("c", "a\x00", "n"), ResourceRef("c", "", "n")),
    "resource.name": (ResourceRef("c", "u", "\ud800"), ResourceRef("c", "u", None)),  # type: ignore[arg-type]
    "resource.generation": (ResourceRef("c", "u", "n", 2**63), ResourceRef("c", "u", "n", 0)),
    "callback_url": (None, 7, b"http://a", "x", "ftp://a", "http://", "http://a b", "http://a\x00"),
    "traceparent": (
        None,
        7,
        b"x",
        "x",
        "00-" + "0" * 32 + "-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-" + "0" * 16 + "-01",
        "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        " 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    ),
    "tracestate": (None, 7, b"x", "a=b"),
    "state": (*sorted(set(JobState) - {JobState.INITIAL_PENDING}), "x", None),
    "assignee_id": ("w",),
    "worker_name": ("w",),
    "host": ("h",),
    "assigned_at": (_NOW,),
    "started_at": (_NOW,),
    "finalized_at": (_NOW,),
    "updated_at": (_NOW,),
    "eligible_at": (_NOW,),
    "last_retry_at": (_NOW,),
    "error": (ErrorInfo("x"),),
    "result": (b"x", b""),
    "retry_count": (1,),
    "failure_count": (1,),
    "attempt": (1,),
    "lease_version": (1,),
    "transition": (1,),
    "reason": ("x",),
    "cancel_reason": ("x",),
    "waiting_for_dependencies": (True,),
    "progress": (Progress(1, "x", _NOW),),
    "token": ("x",),
}


@proves(
    "backend-api.EnqueueJob.error.4",
    "backend-api.EnqueueJobs.error.1",
    "backend-api.ErrorConditions.error.5",
)
@pytest.mark.parametrize("field", _WRONG)
async def test_a_bad_job_is_refused_alone_and_in_a_batch(backend: Contract, field: str) -> None:
    name = field.partition(".")[0].partition("[")[0]
    for value in _WRONG[field]:
        bad = replace(_GOOD, **{name: value})
        with pytest.raises(InvalidArgument) as alone:
            await backend.enqueue_job(bad)
        assert alone.value.field == field, value
        with pytest.raises(InvalidArgument) as in_batch:
            await backend.enqueue_jobs([replace(_GOOD, id="good"), bad])
        assert in_batch.value.field == f"jobs[1].{field}", value
    assert (await backend.get_job_stats([])).total_jobs == 0


@proves("backend-api.ErrorConditions.error.5")
async def test_a_delay_and_a_time_together_are_refused(backend: Contract) -> None:
    with pytest.raises(InvalidArgument) as raised:
        await backend.enqueue_job(replace(_GOOD, delay_s=1.0, scheduled_at=_NOW))
    assert raised.value.field == "delay_s"


async def test_a_payload_over_the_limit_is_refused_with_its_size(store: Store) -> None:
    backend = await store.open(limits=Limits(payload_bytes=10))
    await backend.enqueue_job(replace(_GOOD, payload=b"x" * 10))
    with pytest.raises(PayloadTooLarge) as raised:
        await backend.enqueue_job(replace(_GOOD, id="y", payload=b"x" * 11))
    assert (raised.value.field, raised.value.size, raised.value.limit) == ("payload", 11, 10)
    with pytest.raises(PayloadTooLarge) as in_batch:
        await backend.enqueue_jobs([replace(_GOOD, id="z"), replace(_GOOD, payload=b"x" * 11)])
    assert in_batch.value.field == "jobs[1].payload"
    assert (await backend.get_job_stats([])).total_jobs == 1


async def test_the_most_that_tags_may_take_together_is_stored_and_found(backend: Contract) -> None:
    rng = random.Random(1)  # noqa: S311  (texts that no compression makes shorter)
    # 18 of 128 bytes and one of 104, each of which takes eight more.
    sizes = [128] * 18 + [104]
    most = frozenset("".join(rng.choices(string.printable[:94], k=size)) for size in sizes)
    wide = frozenset(
        "".join(map(chr, rng.choices(range(0x1F300, 0x1F600), k=120))) for _ in "12345"
    )
    for number, tags in enumerate((most, wide)):
        await backend.enqueue_job(replace(_GOOD, id=f"most-{number}", tags=tags))
        [claimed] = await backend.dequeue_jobs("w", tags, 5)
        assert (claimed.id, claimed.tags) == (f"most-{number}", tags)
    with pytest.raises(InvalidArgument) as raised:
        await backend.enqueue_job(replace(_GOOD, id="more", tags=most | {"x"}))
    assert str(raised.value.reason) == (
        "take 2569 bytes together, 8 more than its text for each; the limit is 2560"
    )
