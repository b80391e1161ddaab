"""What is written by hand, because the usual way takes too long for each job of a batch."""

import json
from collections.abc import Mapping
from typing import Any

from queue_operator.backends.postgres.arrays import (
    DUMPERS,
    EPOCH,
    MICROSECOND,
    Microseconds,
    Times,
)
from queue_operator.backends.postgres.batch import submission_event
from queue_operator.backends.postgres.lanes import text_array
from queue_operator.domain.job import Job
from queue_operator.domain.ordering import Priority

ODD = ('"', "\\", "a,b", "{}", "NULL", " ", "é", "\n", "日本")


def test_the_lanes_of_a_submission_are_json() -> None:
    jobs = [
        Job(id="a", type='t"', tags=frozenset(ODD)),
        Job(id="b", type="t", namespace="é", priority=Priority.CRITICAL),
    ]
    told = submission_event([*jobs, jobs[0]], [7, 8, 7])
    assert json.loads(told["event_lanes"]) == [
        {
            "namespace": job.namespace,
            "type": job.type,
            "priority": job.priority.value,
            "tags": sorted(job.tags),
        }
        for job in jobs
    ]
    assert (told["lane_of"], told["event_lane_ids"]) == ((0, 1, 0), (7, 8))


def test_an_array_of_texts_is_written_as_postgresql_reads_it() -> None:
    assert text_array([]) == "{}"
    assert text_array(["a", "b c"]) == '{"a","b c"}'
    assert text_array(['"', "\\"]) == '{"\\"","\\\\"}'


def test_times_are_dumped_alike_in_either_form() -> None:
    ats = [EPOCH, EPOCH + 5 * MICROSECOND]
    dumpers: Mapping[type, Any] = DUMPERS
    whole, counted = dumpers[Times](Times), dumpers[Microseconds](Microseconds)
    assert whole.dump(Times(ats)) == counted.dump(Microseconds([0, 5]))
