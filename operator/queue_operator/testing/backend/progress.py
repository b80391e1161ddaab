"""Progress of running attempts, for stores that keep it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from queue_operator.backends.protocol import ProgressReport, ProgressSink
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.job import Job, Progress
from queue_operator.domain.states import Event
from queue_operator.testing.driving import apply, claim, running
from queue_operator.testing.store import Contract

_NOON: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)
_NO_REPORTS: Final[list[tuple[Any, str]]] = [
    (None, "reports"),
    ("x", "reports"),
    ([7], "reports[0]"),
]


def _progress(percent: int, second: int = 0) -> Progress:
    return Progress(percent, f"{percent} done", _NOON + timedelta(seconds=second))


async def _report(backend: Contract, *reports: tuple[Job, str, Progress]) -> None:
    assert isinstance(backend, ProgressSink)
    await backend.record_progress(
        [ProgressReport(job_id=job.id, token=token, progress=told) for job, token, told in reports]
    )


async def test_progress_of_each_job_is_shown(backend: Contract) -> None:
    one, one_token = await running(backend)
    two, two_token = await running(backend)
    silent, _ = await running(backend)
    await _report(backend, (one, one_token, _progress(10)), (two, two_token, _progress(20)))
    assert (await backend.get_job(one.id)).progress == _progress(10)
    assert (await backend.get_job(two.id)).progress == _progress(20)
    assert (await backend.get_job(silent.id)).progress is None


async def test_the_newest_progress_wins(backend: Contract) -> None:
    job, token = await running(backend)
    await _report(backend, (job, token, _progress(50, 5)), (job, token, _progress(60, 6)))
    await _report(backend, (job, token, _progress(20, 2)))
    assert (await backend.get_job(job.id)).progress == _progress(60, 6)
    # However they come: some are overtaken on their way.
    await _report(backend, (job, token, _progress(80, 8)), (job, token, _progress(70, 7)))
    assert (await backend.get_job(job.id)).progress == _progress(80, 8)


async def test_progress_under_a_stale_token_is_ignored(backend: Contract) -> None:
    job, old = await running(backend)
    await apply(backend, job, Event.LOSE, old)
    await claim(backend, job, "worker-2")
    before = await backend.get_job(job.id)
    missing = Job(id="missing", type="t")
    await _report(
        backend, (job, old, _progress(90)), (job, "", _progress(91)), (missing, old, _progress(1))
    )
    assert await backend.get_job(job.id) == before


async def test_progress_is_no_transition(backend: Contract) -> None:
    job, token = await running(backend)
    before = await backend.get_job(job.id)
    await _report(backend, (job, token, _progress(10)))
    after = await backend.get_job(job.id)
    assert (after.state, after.transition) == (before.state, before.transition)


async def test_progress_ends_with_its_attempt(backend: Contract) -> None:
    job, token = await running(backend)
    await _report(backend, (job, token, _progress(70)))
    await apply(backend, job, Event.FAIL, token)
    assert (await backend.get_job(job.id)).progress is None
    await _report(backend, (job, token, _progress(80)))
    await claim(backend, job, "worker-2")
    assert (await backend.get_job(job.id)).progress is None


async def test_a_message_that_no_store_holds_is_shown_without_it(backend: Contract) -> None:
    job, token = await running(backend)
    await _report(backend, (job, token, Progress(1, "ab\x00\ud800c", _NOON)))
    assert (await backend.get_job(job.id)).progress == Progress(1, "abc", _NOON)


def _odd(*fields: Any) -> Progress:
    return Progress(*fields)


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("job_id", {"job_id": ""}),
        ("job_id", {"job_id": 7}),
        ("namespace", {"namespace": "a\x00"}),
        ("token", {"token": None}),
        ("progress", {"progress": 50}),
        *(("progress.percent", {"progress": _odd(n, "", _NOON)}) for n in (-1, 101, 1.5, True)),
        ("progress.message", {"progress": _odd(1, 7, _NOON)}),
        ("progress.updated_at", {"progress": _odd(1, "", None)}),
        ("progress.updated_at", {"progress": _odd(1, "", datetime(2026, 1, 1))}),
    ],
)
async def test_progress_that_is_none_is_refused_as_a_whole(
    backend: Contract, field: str, change: Any
) -> None:
    assert isinstance(backend, ProgressSink)
    job, token = await running(backend)
    good = ProgressReport(job_id=job.id, token=token, progress=_progress(10))
    with pytest.raises(InvalidArgument) as refused:
        await backend.record_progress([good, replace(good, **change)])
    assert refused.value.field == f"reports[1].{field}"
    for wrong, named in _NO_REPORTS:
        with pytest.raises(InvalidArgument) as refused:
            await backend.record_progress(wrong)
        assert refused.value.field == named
    assert (await backend.get_job(job.id)).progress is None
