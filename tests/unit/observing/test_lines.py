"""How log lines are written, and what is known in them."""

import json
import logging
from contextvars import Context
from datetime import UTC, datetime

import pytest

from queue_operator.observing import JOB, TRACE_ID, WORKER, JobMark, about
from queue_operator.observing.lines import JsonFormatter, TextFormatter


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


def test_a_number_that_is_none_is_a_text_and_all_else_stays_what_it_is() -> None:
    def refused(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    line = JsonFormatter().format(record(loss=float("nan"), best=float("inf"), step=7))
    shown = json.loads(line, parse_constant=refused)
    assert (shown["loss"], shown["best"], shown["step"]) == ("nan", "inf", 7)


def test_what_others_call_fields_is_left_alone() -> None:
    made = record()
    made.fields = 7
    assert json.loads(JsonFormatter().format(made))["message"] == "made 3"
    assert TextFormatter().format(made).endswith("made 3")


def shown(made: logging.LogRecord, process: str = "") -> dict[str, object]:
    found: dict[str, object] = json.loads(JsonFormatter(process).format(made))
    return found


def test_a_line_tells_its_time_in_utc() -> None:
    made = record()
    told = datetime.fromisoformat(str(shown(made)["time"]))
    assert told.utcoffset() == UTC.utcoffset(None)
    assert abs(told.timestamp() - made.created) < 0.001


def test_what_is_known_where_it_is_written_is_in_the_line() -> None:
    def write() -> dict[str, object]:
        WORKER.set("mail-1")
        JOB.set(JobMark("shop", "a", 2))
        TRACE_ID.set("0af7651916cd43dd8448eb211c80319c")
        return shown(record(seconds=1))

    line = Context().run(write)
    assert {key: line[key] for key in ("worker", "namespace", "job_id", "attempt", "trace_id")} == {
        "worker": "mail-1",
        "namespace": "shop",
        "job_id": "a",
        "attempt": 2,
        "trace_id": "0af7651916cd43dd8448eb211c80319c",
    }
    assert (
        not {"worker", "namespace", "job_id", "attempt", "trace_id"}
        & Context().run(shown, record()).keys()
    )


def test_a_line_about_another_job_tells_that_one() -> None:
    def write() -> dict[str, object]:
        JOB.set(JobMark("shop", "a", 2))
        made = record()
        vars(made).update(about("mail", "b"))
        return shown(made)

    line = Context().run(write)
    assert (line["namespace"], line["job_id"]) == ("mail", "b")
    assert "attempt" not in line


@pytest.mark.parametrize(
    ("name", "told"), [("MainProcess", "server"), ("controller", "controller"), (None, None)]
)
def test_the_first_process_has_the_name_of_its_program(name: str | None, told: str | None) -> None:
    made = record()
    made.processName = name
    assert shown(made, "server").get("process") == told


def test_an_error_shows_its_trace_and_wrong_arguments_lose_no_line() -> None:
    made = record()
    made.exc_text = "Traceback: of another process"
    made.args = ("three",)
    line = shown(made)
    assert line["exception"] == "Traceback: of another process"
    assert line["message"] == "made %d ('three',)"
