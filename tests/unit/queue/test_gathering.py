"""Single submissions share calls, but neither answers nor faults."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from queue_operator.backends.protocol import KeyHeld
from queue_operator.domain.errors import (
    DuplicateJob,
    InvalidArgument,
    QueueError,
    Unavailable,
)
from queue_operator.domain.job import Job, Submitted
from queue_operator.queue.gathering import Gathering

Verdict = Callable[[Job], Submitted]


def accepted(job: Job) -> Submitted:
    return Submitted(job_id=job.id)


class Counter:
    """Takes batches, each once it is let."""

    def __init__(self, verdict: Verdict = accepted, *, closed: bool = False) -> None:
        self.batches: list[list[str]] = []
        self._verdict = verdict
        self.open = asyncio.Event()
        if not closed:
            self.open.set()

    async def submit(self, jobs: Sequence[Job], *, atomic: bool, patient: bool) -> list[Submitted]:
        assert not atomic
        self.batches.append([job.id for job in jobs])
        await self.open.wait()
        return [self._verdict(job) for job in jobs]


def job(name: str, **fields: object) -> Job:
    return Job(id=name, type="t", **fields)  # type: ignore[arg-type]


async def settle() -> None:
    """Lets every task run as far as it can."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_whoever_comes_meanwhile_goes_together() -> None:
    counter = Counter(closed=True)
    gathering = Gathering(counter.submit)
    first = asyncio.create_task(gathering.submit(job("a")))
    await settle()
    others = [asyncio.create_task(gathering.submit(job(name))) for name in "bcd"]
    await settle()
    assert counter.batches == [["a"]]
    counter.open.set()
    answers = await asyncio.gather(first, *others)
    assert counter.batches == [["a"], ["b", "c", "d"]]
    assert [answer.job_id for answer in answers] == ["a", "b", "c", "d"]


async def test_what_is_wrong_is_told_to_the_one_alone() -> None:
    def verdict(job: Job) -> Submitted:
        if job.id == "b":
            return Submitted(job_id="b", error=InvalidArgument("jobs[1].type", "is bad"))
        return accepted(job)

    gathering = Gathering(Counter(verdict).submit)
    answers = await asyncio.gather(
        *(gathering.submit(job(name)) for name in "abc"), return_exceptions=True
    )
    assert [type(answer) for answer in answers] == [Submitted, InvalidArgument, Submitted]
    assert isinstance(answers[1], InvalidArgument)
    assert answers[1].field == "type"


async def test_of_two_with_one_id_the_second_sees_how_the_first_did() -> None:
    counter = Counter(closed=True)
    gathering = Gathering(counter.submit)
    calls = [asyncio.create_task(gathering.submit(job(name))) for name in "xaab"]
    await settle()
    counter.open.set()
    await asyncio.gather(*calls)
    assert counter.batches == [["x", "a", "b"], ["a"]]


async def test_a_job_that_waits_for_others_goes_alone() -> None:
    counter = Counter(closed=True)
    gathering = Gathering(counter.submit)
    calls = [
        asyncio.create_task(gathering.submit(one))
        for one in (job("a"), job("b", depends_on=("a",)), job("c"))
    ]
    await settle()
    counter.open.set()
    await asyncio.gather(*calls)
    assert sorted(counter.batches) == [["a", "c"], ["b"]]


async def test_large_payloads_do_not_go_together() -> None:
    counter = Counter(closed=True)
    gathering = Gathering(counter.submit)
    payload = bytes(5 * 1024 * 1024)
    calls = [asyncio.create_task(gathering.submit(job(name, payload=payload))) for name in "abc"]
    await settle()
    counter.open.set()
    await asyncio.gather(*calls)
    assert counter.batches == [["a"], ["b"], ["c"]]


async def test_whoever_has_gone_is_not_stored() -> None:
    counter = Counter(closed=True)
    gathering = Gathering(counter.submit)
    calls = [asyncio.create_task(gathering.submit(job("a")))]
    await settle()
    calls += [asyncio.create_task(gathering.submit(job(name))) for name in "bc"]
    await settle()
    calls[0].cancel()
    calls[1].cancel()
    await settle()
    counter.open.set()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert counter.batches == [["a"], ["c"]]
    assert isinstance(answers[2], Submitted)


@pytest.mark.parametrize(
    ("error", "calls", "kinds"),
    [
        (Unavailable("away"), ["abc"], [Unavailable] * 3),
        (
            KeyError("a fault of ours"),
            ["abc", "a", "bc", "b", "c"],
            [Submitted, KeyError, Submitted],
        ),
        (QueueError("too much"), ["abc", "a", "bc", "b", "c"], [Submitted, QueueError, Submitted]),
    ],
    ids=["outage", "fault", "refusal"],
)
async def test_what_fails_as_a_whole(
    error: Exception, calls: list[str], kinds: list[type[object]]
) -> None:
    """An outage concerns all; of anything else one job is to blame."""
    batches: list[str] = []

    async def submit(jobs: Sequence[Job], *, atomic: bool, patient: bool) -> list[Submitted]:
        batches.append("".join(job.id for job in jobs))
        if "b" in batches[-1]:
            raise error
        return [accepted(job) for job in jobs]

    gathering = Gathering(submit)
    answers = await asyncio.gather(
        *(gathering.submit(job(name)) for name in "abc"), return_exceptions=True
    )
    assert batches == calls
    assert [type(answer) for answer in answers] == kinds


async def test_so_many_may_wait_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queue_operator.queue.gathering._MOST_WAITING", 3)
    counter = Counter(closed=True)
    gathering = Gathering(counter.submit)
    calls = [asyncio.create_task(gathering.submit(job("a")))]
    await settle()
    calls += [asyncio.create_task(gathering.submit(job(name))) for name in "bcde"]
    await settle()
    counter.open.set()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(answer) for answer in answers] == [Submitted] * 4 + [Unavailable]


async def test_an_id_that_is_taken_keeps_its_error() -> None:
    def verdict(job: Job) -> Submitted:
        return Submitted(job_id=job.id, error=DuplicateJob((job.id,), (4,)))

    gathering = Gathering(Counter(verdict).submit)
    with pytest.raises(DuplicateJob):
        await gathering.submit(job("a"))


async def test_whose_key_is_another_s_waits_alone() -> None:
    ended = asyncio.Event()
    tries: list[tuple[list[str], bool]] = []

    async def submit(jobs: Sequence[Job], *, atomic: bool, patient: bool) -> list[Submitted]:
        tries.append(([job.id for job in jobs], patient))
        held = [job for job in jobs if job.idempotency_key == "held"]
        if held and patient:
            await ended.wait()
            return [Submitted(job_id="first", duplicate=True)]
        errors = {job.id: KeyHeld("held") for job in held}
        return [Submitted(job_id=job.id, error=errors.get(job.id)) for job in jobs]

    gathering = Gathering(submit)
    held = asyncio.create_task(gathering.submit(job("a", idempotency_key="held")))
    others = [gathering.submit(job(name, idempotency_key=name)) for name in "bc"]
    assert [answer.job_id for answer in await asyncio.gather(*others)] == ["b", "c"]
    assert (await gathering.submit(job("d"))).job_id == "d"
    assert not held.done()
    ended.set()
    assert (await held).job_id == "first"
    assert (["a"], True) in tries
    assert all(not patient for ids, patient in tries if ids != ["a"])
