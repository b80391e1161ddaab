"""The same for what only some stores take: checkpoints, children, log lines, progress, receipts
of cancels.
"""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

import pytest

from queue_operator.backends.protocol import (
    CancelInbox,
    CheckpointReport,
    Checkpoints,
    JobLogs,
    LogLine,
    LogReport,
    ProgressReport,
    ProgressSink,
    Spawner,
    SpawnRequest,
)
from queue_operator.domain.errors import StaleLease
from queue_operator.domain.job import Job, Progress
from queue_operator.domain.lease import Held
from queue_operator.domain.states import JobState
from queue_operator.testing.backend.owners import SPEAKERS, Said, Word, check_heard, speaking
from queue_operator.testing.driving import running
from queue_operator.testing.store import TTL_S, Contract, Store

_AT: Final = datetime(2026, 1, 1, tzinfo=UTC)


async def _checkpointed(word: Word) -> bool:
    assert isinstance(word.backend, Checkpoints)
    report = CheckpointReport(
        job_id=word.job.id,
        token=word.token,
        number=1,
        data=b"x",
        assignee_id=word.assignee_id,
    )
    [answer] = await word.backend.store_checkpoints([report])
    assert answer.error is None or isinstance(answer.error, StaleLease)
    return answer.error is None


async def _spawned(word: Word) -> bool:
    assert isinstance(word.backend, Spawner)
    request = SpawnRequest(
        parent_id=word.job.id,
        token=word.token,
        key="1",
        job=Job(id="", type="child"),
        assignee_id=word.assignee_id,
    )
    [answer] = await word.backend.spawn([request])
    assert answer.error is None or isinstance(answer.error, StaleLease)
    return answer.error is None


async def _logged(word: Word) -> bool:
    assert isinstance(word.backend, JobLogs)
    line = LogLine(number=1, at=_AT, level="INFO", message="hello")
    report = LogReport(
        job_id=word.job.id, token=word.token, lines=(line,), assignee_id=word.assignee_id
    )
    await word.backend.append_logs([report])
    return bool(await word.backend.job_log(word.job.id))


async def _progressed(word: Word) -> bool:
    assert isinstance(word.backend, ProgressSink)
    report = ProgressReport(
        job_id=word.job.id,
        token=word.token,
        progress=Progress(percent=50, message="", updated_at=_AT),
        assignee_id=word.assignee_id,
    )
    await word.backend.record_progress([report])
    return (await word.backend.get_job(word.job.id)).progress is not None


async def _confirmed(word: Word) -> bool:
    """Whether the cancel request of the job is taken as seen: then nobody waits for it."""
    assert isinstance(word.backend, CancelInbox)
    await word.backend.cancel_jobs([], [word.job.id])
    received = Held(word.job.id, word.token, assignee_id=word.assignee_id)
    await word.backend.confirm_cancels([received])
    return (await word.backend.get_job(word.job.id)).state is JobState.CANCELLING


_SAID: Final[dict[str, Said]] = {
    "checkpoint": _checkpointed,
    "spawn": _spawned,
    "log": _logged,
    "progress": _progressed,
}


@pytest.mark.parametrize("speaker", SPEAKERS)
@pytest.mark.parametrize("said", _SAID.values(), ids=_SAID)
async def test_a_session_tells_only_of_its_own_jobs(
    store: Store, backend: Contract, speaker: str, said: Said
) -> None:
    await check_heard(await speaking(store, backend, speaker), said)


@pytest.mark.parametrize("speaker", SPEAKERS)
@pytest.mark.parametrize("said", _SAID.values(), ids=_SAID)
async def test_whoever_is_no_session_tells_with_the_token_alone(
    store: Store, backend: Contract, speaker: str, said: Said
) -> None:
    word = await speaking(store, backend, speaker)
    assert await said(replace(word, assignee_id=None))


@pytest.mark.parametrize("assignee", ["worker-1", "worker-2"])
async def test_a_cancel_is_confirmed_by_the_session_that_was_asked(
    store: Store, backend: Contract, assignee: str
) -> None:
    job, token = await running(backend)
    assert await _confirmed(Word(backend, job, token, assignee))
    await store.age(40)
    await Word(backend, job, token, "worker-1").renewed()
    await backend.expire_leases(lease_ttl_s=TTL_S)
    # Nobody waits for a worker that has not even seen it.
    seen = (await backend.get_job(job.id)).state is JobState.CANCELLING
    assert seen is (assignee == "worker-1")
