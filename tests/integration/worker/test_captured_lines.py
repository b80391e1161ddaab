"""Lines of a handler's libraries, as the operator has them with the job."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from queue_operator.domain.states import JobState

PROGRAMS = Path(__file__).parent / "programs"


async def test_each_attempt_has_the_lines_of_its_libraries(
    operator: Any, start_worker: Callable[..., Any]
) -> None:
    start_worker(program="calling:worker", folder=PROGRAMS)
    ids = [await operator.submit(type_, max_attempts=2) for type_ in ("thread", "loop", "process")]
    for job_id in ids:
        await operator.reached(job_id, JobState.COMPLETED)
        log = await operator.queue.backend.job_log(job_id, namespace=operator.namespace)
        first, second = ([(one.level, one.message) for one in attempt.lines] for attempt in log)
        assert first == [("INFO", "connecting to there"), ("ERROR", "gave up")]
        assert second == [("INFO", "connecting to there")]
        connecting, gave_up = (json.loads(one.fields) for one in log[0].lines)
        assert connecting == {"logger": "library", "port": 25}
        assert gave_up["exception"].rstrip().endswith("ConnectionError: nobody is there")
