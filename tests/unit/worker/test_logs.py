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
    shown = json.loads(JsonFormatter().format(record(job_id="a", message="another")))
    assert (shown["message"], shown["level"], shown["job_id"]) == ("made 3", "info", "a")
    assert shown["fields.message"] == "another"


class Unspeakable:
    def __str__(self) -> str:
        raise ValueError("no words")


def test_what_is_no_json_is_shown_as_its_text() -> None:
    circle: list[object] = []
    circle.append(circle)
    odd = record(odd=Unspeakable(), circle=circle, pairs={(1, 2): 3})
    shown = json.loads(JsonFormatter().format(odd))
    assert shown["odd"] == "an Unspeakable whose text cannot be had: ValueError"
    assert (shown["circle"], shown["pairs"]) == ("[[...]]", "{(1, 2): 3}")
    assert "whose text cannot be had" in TextFormatter().format(odd)


def test_what_others_call_fields_is_left_alone() -> None:
    made = record()
    made.fields = 7
    assert json.loads(JsonFormatter().format(made))["message"] == "made 3"
    assert TextFormatter().format(made).endswith("made 3")
