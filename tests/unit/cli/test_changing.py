"""Changes to all jobs that match: what is asked before, and what ends the command."""

import json
from typing import Any

import pytest
from tests.unit.cli.typed import document, typed
from tests.unit.client.scripted import Answer, serving

from queue_operator.cli import connection


def told(changed: int, name: str = "cancelled", **others: Any) -> Answer:
    fields = {"requested": changed, name: changed, "skipped": 0, "failed": 0, "errors": []}
    return Answer(200, {**fields, **others})


DRY = told(3, dry_run=True)
SAMPLE = Answer(
    200,
    {
        "jobs": [
            {
                "job_id": "one-of-them",
                "namespace": "n",
                "type": "t",
                "state": "SCHEDULED",
                "attempt": 0,
                "priority": "NORMAL",
            }
        ],
        "next_cursor": None,
        "has_more": False,
    },
)


@pytest.fixture
def at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard input, which the runner replaces, as that of somebody who is there."""
    monkeypatch.setattr(connection, "answerable", lambda: True)


def test_where_nobody_can_answer_nothing_is_changed() -> None:
    with serving(DRY, SAMPLE) as script:
        done = typed("cancel", "--type", "t", server=script)
    assert done.exit_code == 2
    assert "3 jobs would be cancelled: give --yes, or --dry-run to look" in done.stderr
    assert [asked.body["dry_run"] for asked in script.asked] == [True]


@pytest.mark.usefixtures("at_a_terminal")
def test_who_is_asked_sees_some_of_the_jobs() -> None:
    with serving(DRY, SAMPLE, told(3)) as script:
        done = typed("cancel", "--type", "t", server=script, stdin="y\n")
    assert done.exit_code == 0, done.output
    assert "one-of-them" in done.stderr
    assert "3 jobs will be cancelled. Go on? [y/N]" in done.stderr
    assert done.stdout == "3 jobs cancelled\n"
    first, sample, last = [asked.body for asked in script.asked]
    assert first["filter"] == last["filter"] == {"types": ["t"]}
    # Jobs that have ended are not meant.
    assert set(sample["states"]) == {"PENDING", "DELAYED", "SCHEDULED", "RUNNING", "RETRYING"}
    assert last["dry_run"] is False


@pytest.mark.usefixtures("at_a_terminal")
def test_a_no_is_a_no() -> None:
    with serving(DRY, SAMPLE) as script:
        done = typed("cancel", "--type", "t", server=script, stdin="n\n")
        whole = typed("pause", server=script, stdin="n\n")
    assert (done.exit_code, whole.exit_code) == (1, 1)
    assert "Aborted" in done.stderr
    assert "This pauses the whole namespace. Go on?" in whole.stderr
    assert len(script.asked) == 2


def test_a_dry_run_shows_how_many_and_some() -> None:
    with serving(told(10_000, dry_run=True, has_more=True), SAMPLE) as script:
        done = typed("cancel", "--all", "--dry-run", server=script)
    assert done.exit_code == 0
    first, *rest = done.stdout.splitlines()
    assert first == "10,000 or more jobs would be cancelled"
    assert "one-of-them" in "".join(rest)
    assert script.asked[0].body["filter"] == {"all": True}


def test_all_that_match_are_changed_in_as_many_requests_as_it_takes() -> None:
    more = told(10_000, "deleted", has_more=True)
    dry = told(10_000, "deleted", dry_run=True, has_more=True)
    with serving(dry, more, told(5, "deleted")) as script:
        result = document("delete", "--state", "completed", "--yes", server=script)
    assert (result["deleted"], result["has_more"], result["dry_run"]) == (10_005, False, False)
    assert len(script.asked) == 3


def test_where_nothing_matches_nothing_is_wrong() -> None:
    with serving(told(0, "queued", dry_run=True)) as script:
        done = typed("retry", "--code", "NONE", "--yes", server=script)
    assert (done.exit_code, done.stdout) == (0, "0 jobs would be queued\n")
    assert len(script.asked) == 1


def test_what_could_not_be_changed_is_told_and_ends_the_command_with_1() -> None:
    errors = [{"job_id": f"j{n}", "code": "NOT_FOUND", "message": "is gone"} for n in range(25)]
    answer = told(2, requested=30, skipped=3, failed=25, errors=errors)
    with serving(answer) as script:
        done = typed("cancel", "a", "b", "a", server=script)
    assert done.exit_code == 1
    skipped = "3 skipped (ended, or being cancelled already)"
    assert done.stdout == f"2 jobs cancelled, {skipped}, 25 failed\n"
    assert done.stderr.startswith("j0: is gone\n")
    assert "and 5 more; --output json lists them" in done.stderr
    # Each id once.
    assert script.asked[0].body["job_ids"] == ["a", "b"]


def test_ids_of_which_none_could_be_changed_end_the_command_with_1() -> None:
    with serving(told(0, "deleted", requested=2, skipped=2)) as script:
        assert typed("delete", "a", "b", server=script).exit_code == 1
    with serving(told(1, "deleted", requested=2, skipped=1)) as script:
        assert typed("delete", "a", "b", server=script).exit_code == 0


def test_a_cancel_of_jobs_that_have_ended_says_so_and_is_no_failure() -> None:
    with serving(told(0, requested=2, skipped=2)) as script:
        done = typed("cancel", "a", "b", server=script)
        as_json = typed("cancel", "-", "-o", "json", server=script, stdin="a\nb\n")
    assert (done.exit_code, as_json.exit_code) == (0, 0)
    assert done.stdout == "0 jobs cancelled, 2 skipped (ended, or being cancelled already)\n"
    assert json.loads(as_json.stdout)["skipped"] == 2


def test_ids_that_are_no_text_are_told_with_their_line() -> None:
    done = typed("cancel", "-", stdin=b"a\n\xff\n")
    assert done.exit_code == 2
    assert "standard input: line 2 is not UTF-8" in done.stderr


def test_ids_come_from_standard_input() -> None:
    with serving(told(2, "queued")) as script:
        done = typed("retry", "-", "--delay", "1m", server=script, stdin="a\n\n b \na\n")
    assert done.exit_code == 0, done.output
    assert script.asked[0].body == {
        "job_ids": ["a", "b"],
        "reset_attempts": False,
        "delay": "PT1M",
        "dry_run": False,
    }


@pytest.mark.parametrize(
    ("command", "answer", "exit_code"),
    [
        ("cancel", {"status": "CANCELLED", "previous_state": "SCHEDULED", "message": "m"}, 0),
        ("cancel", {"status": "CANCEL_REQUESTED", "previous_state": "RUNNING", "message": "m"}, 0),
        (
            "cancel",
            {"status": "ALREADY_COMPLETE", "previous_state": "COMPLETED", "message": "m"},
            0,
        ),
        ("retry", {"status": "QUEUED", "new_state": "RETRYING"}, 0),
        ("retry", {"status": "NOT_RETRIABLE", "new_state": "COMPLETED"}, 1),
    ],
)
def test_one_job(command: str, answer: dict[str, str], exit_code: int) -> None:
    with serving(Answer(200, {"job_id": "a", **answer})) as script:
        done = typed(command, "a", server=script)
        as_json = typed(command, "a", "-o", "json", server=script)
    assert (done.exit_code, as_json.exit_code) == (exit_code, exit_code)
    assert done.stdout.startswith(f"a {answer['status']}: ")
    assert json.loads(as_json.stdout)["status"] == answer["status"]
    assert script.asked[0].path == f"/v1/jobs/a/{command}"


@pytest.mark.parametrize(
    ("options", "states"),
    [
        (["--all"], ["FAILED", "DEAD_LETTER"]),
        (["--code", "E1"], ["FAILED", "DEAD_LETTER"]),
        (["--state", "RETRYING"], ["RETRYING"]),
    ],
)
def test_what_a_dry_run_of_a_retry_shows_is_what_would_be_queued(
    options: list[str], states: list[str]
) -> None:
    nothing = Answer(200, {"failures": [], "total_count": 0})
    with serving(told(3, "queued", dry_run=True), nothing) as script:
        done = typed("retry", *options, "--dry-run", server=script)
    assert done.exit_code == 0, done.output
    assert script.asked[1].body["states"] == states


def test_a_retry_says_why_jobs_were_skipped() -> None:
    why = "job 'b' is COMPLETED: it has succeeded; submit it anew to run it again"
    skips = [{"job_id": "b", "code": "NOT_RETRIABLE", "message": why}]
    with serving(told(1, "queued", requested=2, skipped=1, not_retriable=skips)) as script:
        done = typed("retry", "a", "b", server=script)
    assert (done.exit_code, done.stdout) == (0, "1 job queued, 1 skipped\n")
    assert done.stderr == f"b: {why}\n"


HELD = Answer(
    200, {"job_id": "b", "state": "SCHEDULED", "suspended": True, "message": "the job waits"}
)
GONE = Answer(404, {"code": "NOT_FOUND", "message": "job 'a' does not exist", "details": []})


def test_one_job_that_is_not_there_keeps_no_other_from_being_suspended() -> None:
    with serving(GONE, HELD) as script:
        done = typed("suspend", "a", "b", "a", server=script)
    assert (done.exit_code, done.stdout) == (1, "b: the job waits\n")
    assert done.stderr.startswith("error: job 'a' does not exist")
    assert [asked.path.partition("?")[0] for asked in script.asked] == [
        "/v1/jobs/a/suspend",
        "/v1/jobs/b/suspend",
    ]


def test_one_job_alone_that_cannot_be_resumed_is_told_once() -> None:
    with serving(GONE) as script:
        done = typed("resume", "--job", "a", server=script)
    assert done.exit_code == 1
    assert done.stderr.count("does not exist") == 1


@pytest.mark.parametrize(("ended", "said"), [(None, True), ("2030-01-01T12:00:00Z", False)])
def test_a_job_that_has_ended_waits_for_no_resume(ended: str | None, said: bool) -> None:
    [job] = SAMPLE.body["jobs"]
    answer = Answer(200, {**job, "suspended": True, "completed_at": ended})
    with serving(answer) as script:
        done = typed("get", "one-of-them", server=script)
    assert done.exit_code == 0
    assert ("until it is resumed" in done.stdout) is said
