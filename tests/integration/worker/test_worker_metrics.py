"""What a worker counts, beside what the operator has stored of it."""

import asyncio
import signal
import socket
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.integration.serving import free_port
from tests.unit.metrics import exposition
from tests.unit.metrics.exposition import Samples, key
from tests.waiting import DEADLINE_S

from queue_operator.domain.job import Job
from queue_operator.domain.states import JobState

PROGRAMS = Path(__file__).parent / "programs"
FATES = {
    "good": JobState.COMPLETED,
    "in-a-process": JobState.COMPLETED,
    "second-time": JobState.COMPLETED,
    "bad": JobState.DEAD_LETTER,
}


async def scraped(port: int, until: Callable[[Samples], bool]) -> Samples:
    """What the worker answers once it is so."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            found = await asyncio.to_thread(exposition.scraped, port)
            if until(found):
                return found


async def attempts_by_kind(operator: Any, jobs: list[Job]) -> Counter[tuple[str, str]]:
    """What the operator has in the histories of these jobs, by type and outcome."""
    found: Counter[tuple[str, str]] = Counter()
    for job in jobs:
        history = await operator.queue.backend.get_history(job.id, namespace=operator.namespace)
        for attempt in history.attempts:
            found[job.type, "completed" if attempt.error is None else "failed"] += 1
    return found


async def test_its_figures_are_those_of_the_operator_and_are_read_until_it_has_drained(
    operator: Any, start_worker: Callable[..., Any], ended: Callable[..., Any]
) -> None:
    ids = [(await operator.submit(type_), state) for type_, state in FATES.items() for _ in "123"]
    port = free_port()
    process = start_worker(program="measured:worker", folder=PROGRAMS, METRICS_PORT=str(port))
    jobs = [await operator.reached(job_id, state) for job_id, state in ids]
    stored = await attempts_by_kind(operator, jobs)
    assert sum(stored.values()) == 15
    waiting = await operator.submit("waits")
    await operator.progressed(waiting, "waits")

    def beats(found: Samples) -> bool:
        return found[key("queueworker_heartbeat_answer_seconds_count")] > 0

    found = await scraped(port, beats)
    counted = {
        (dict(labels)["type"], dict(labels)["outcome"]): value
        for (name, labels), value in found.items()
        if name == "queueworker_attempts_total" and value
    }
    assert counted == stored
    for type_ in FATES:
        timed = found[key("queueworker_attempt_seconds_count", type=type_)]
        assert timed == sum(count for (kind, _), count in stored.items() if kind == type_)
    assert found[key("queueworker_connected")] == found[key("queueworker_sessions_total")] == 1
    assert found[key("queueworker_slots", state="busy")] == 1
    assert found[key("queueworker_slots", state="free")] == 9
    assert found[key("process_resident_memory_bytes")] > 0
    assert ("queueworker_event_loop_lag_seconds_count", (("loop", "handlers"),)) in found
    process.send_signal(signal.SIGTERM)

    def drains(found: Samples) -> bool:
        return found[key("queueworker_slots", state="free")] == 0

    draining = await scraped(port, drains)
    assert draining[key("queueworker_slots", state="busy")] == 1
    await operator.queue.cancel_jobs([], [waiting], namespace=operator.namespace)
    assert await ended(process) == 0


async def test_a_worker_works_without_figures_where_its_port_is_taken(
    operator: Any, start_worker: Callable[..., Any]
) -> None:
    with socket.create_server(("", 0)) as taken:
        port = str(taken.getsockname()[1])
        start_worker(program="measured:worker", folder=PROGRAMS, METRICS_PORT=port)
        await operator.reached(await operator.submit("good"), JobState.COMPLETED)
