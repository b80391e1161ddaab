"""What a worker writes to its own log."""

import json
import logging

from queue_operator.worker.logs import JsonFormatter, TextFormatter


def record(**fields: object) -> logging.LogRecord:
    made = logging.LogRecord("jobs", logging.INFO, "jobs.py", 1, "made %d", (3,), None)
    if fields:
        made.fields = fields
    return made


def test_people_see_the_fields_too() -> None:
    shown = TextFormatter().format(record(job_id="a", seconds=1.5))
    assert shown.endswith(" INFO jobs: made 3 job_id=a seconds=1.5")
    assert TextFormatter().format(record()).endswith(" INFO jobs: made 3")


def test_programs_see_an_object() -> None:
    shown = json.loads(JsonFormatter().format(record(job_id="a", message="not this")))
    assert (shown["message"], shown["level"], shown["job_id"]) == ("made 3", "info", "a")
