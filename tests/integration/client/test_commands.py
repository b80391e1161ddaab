"""The commands against the real server: tables for people, documents for programs."""

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.integration.client.stage import Stage

from queue_operator.backends.lost_workers import Loss
from queue_operator.backends.worker_sessions import WorkerSession
from queue_operator.cli import awaiting
from queue_operator.client import models


def submitted(stage: Stage, *arguments: str) -> str:
    job_id: str = stage.json("submit", *arguments)["job_id"]
    return job_id


def test_a_job_from_submission_to_deletion(stage: Stage) -> None:
    done = stage.type("submit", "email", '{"to": "a"}', "--delay", "1h", "--key", "k")
    assert done.exit_code == 0
    job_id, state, *_ = done.stdout.split()
    assert state == "DELAYED,"
    again = stage.type("submit", "email", '{"to": "a"}', "--delay", "1h", "--key", "k")
    assert again.stdout == f"{job_id} is there already, stored under this key before\n"
    other = stage.type("submit", "email", '{"to": "b"}', "--key", "k")
    assert other.exit_code == 1
    assert "give another --key" in other.stderr
    assert stage.json("why", job_id)["reason"] == "DELAYED"
    assert "not before" in stage.type("why", job_id).stdout
    told = stage.json("cancel", job_id, "--reason", "no")
    assert told["status"] == "CANCELLED"
    ended = stage.type("cancel", job_id)
    assert ended.exit_code == 0
    why = "the job had already ended as CANCELLED"
    assert ended.stdout == f"{job_id} ALREADY_COMPLETE: {why}\n"
    page = stage.type("get", job_id)
    assert ["state", "CANCELLED"] in [line.split() for line in page.stdout.splitlines()]
    assert "not before" not in page.stdout
    assert stage.json("get", job_id)["history"][-1]["to_state"] == "CANCELLED"
    assert stage.type("delete", job_id).stdout == f"{job_id} DELETED\n"
    gone = stage.type("get", job_id)
    assert gone.exit_code == 1
    assert "is --namespace right?" in gone.stderr


def test_results_are_shown_and_waited_for(stage: Stage) -> None:
    job_id = submitted(stage, "sum", "[1, 2]", "--max-attempts", "7", "--timeout", "90s")
    assert stage.complete({"sum": 3}) == job_id
    rows = [line.split() for line in stage.type("get", job_id).stdout.splitlines()]
    assert ["attempt", "1", "of", "7"] in rows
    assert ["timeout", "1m30s"] in rows
    worker = stage.json("get", job_id)["worker"]
    assert ["worker", worker] in rows
    done = stage.type("get", job_id, "--wait", "--timeout", "30s")
    assert done.exit_code == 0
    assert '"sum": 3' in done.stdout
    told = stage.json("get", job_id, "--wait")
    assert told["result"]["output"] == {"sum": 3}
    assert set(told) == set(models.JobStatus.model_fields)
    broken = submitted(stage, "sum", "[]")
    stage.fail("EMPTY", message="nothing to add\nreally")
    failed = stage.type("get", broken, "--wait")
    assert failed.exit_code == 1
    assert "PERMANENT EMPTY: nothing to add" in failed.stdout


def test_who_waits_is_told_the_id_at_once_and_later_what_the_job_waits_for(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(awaiting, "QUIET_S", 0.2)
    done = stage.type("submit", "sum", "[]", "--wait", "--wait-timeout", "400ms")
    assert (done.exit_code, done.stdout) == (3, "")
    first, second, last = done.stderr.splitlines()
    job_id, state = first.split()
    assert state == "SCHEDULED"
    assert second == f"{job_id} has not ended yet: {stage.json('why', job_id)['message']}"
    assert f"job '{job_id}' has not ended within 0.4 s: SCHEDULED" in last
    # The job goes on.
    assert stage.json("get", job_id)["state"] == "SCHEDULED"
    short = stage.type("get", job_id, "--wait", "--timeout", "100ms")
    assert short.exit_code == 3
    assert "not ended yet" not in short.stderr
    refused = stage.type("submit", "sum", "[]", "--wait-timeout", "3s")
    assert refused.exit_code == 2
    assert "--timeout limits one execution" in refused.stderr


def test_workers_are_listed_and_those_that_were_lost(stage: Stage) -> None:
    def session(name: str, types: str, tags: str = "", **more: Any) -> WorkerSession:
        return WorkerSession(
            session_id=f"{name}-{stage.namespace}",
            namespace=stage.namespace,
            worker_name=name,
            types=frozenset(types.split()),
            tags=frozenset(tags.split()),
            **more,
        )

    mailer = session("mailer-1", "sms mail", "pool=a", capacity=4, busy=3, version="1.2")
    anything = session("any-1", "", capacity=8, draining=True)
    for one in (mailer, anything, gone := session("mailer-2", "mail", capacity=2)):
        stage.run(stage.backend.open_session(one))
    stage.run(stage.backend.lose_sessions([Loss(session_id=gone.session_id, jobs=2, ago_s=60.0)]))
    header, *rows = (line.split() for line in stage.type("workers").stdout.splitlines())
    assert header == ["WORKER", "STATE", "BUSY", "SLOTS", "TYPES", "TAGS", "VERSION", "HEARD"]
    assert {row[0]: row[1:5] for row in rows} == {
        "mailer-1": ["CONNECTED", "3", "4", "mail"],
        "any-1": ["DRAINING", "0", "8", "any"],
        "mailer-2": ["LOST", "2", "2", "mail"],
    }
    [found] = [row for row in rows if row[0] == "mailer-1"]
    assert found[4:8] == ["mail", "sms", "pool=a", "1.2"]
    told = stage.json("workers", "--type", "sms")
    assert {one["name"] for one in told["workers"]} == {"mailer-1", "any-1"}
    assert told["lost"] == []
    nobody = stage.type("workers", "--type", "sms", "--namespace", "small")
    assert nobody.stderr == "no worker is connected\n"


def test_a_pause_says_what_it_replaces_and_that_nobody_handles_its_type(stage: Stage) -> None:
    assert stage.type("pause", "mail", "--reason", "first").stderr == ""
    again = stage.type("pause", "mail", "--reason", "second")
    assert again.stdout.startswith("type mail of namespace ")
    assert again.stderr.startswith("it replaces the pause by ")
    assert again.stderr.endswith(": first\n")
    session = WorkerSession(
        session_id=f"mailer-{stage.namespace}",
        namespace=stage.namespace,
        worker_name="mailer",
        types=frozenset({"send-email"}),
    )
    stage.run(stage.backend.open_session(session))
    told = stage.type("pause", "send-emial")
    assert told.stderr == "no connected worker handles send-emial; did you mean send-email?\n"
    assert stage.type("pause", "send-email").stderr == ""


def test_a_mistyped_command_is_told_what_it_may_have_been(stage: Stage) -> None:
    assert "Did you mean 'list'?" in stage.type("lst").stderr


def test_lists(stage: Stage) -> None:
    ids = [
        submitted(stage, "a" if n % 2 else "b", str(n), "--tag", f"n={n}", "--tag", "region=eu")
        for n in range(5)
    ]
    whole = stage.json("list", "--tag", "region=eu")
    assert set(whole) == set(models.JobSearchResult.model_fields)
    assert [job["job_id"] for job in whole["jobs"]] == ids[::-1]
    assert whole["total_count"] == 5
    rows = stage.type("list", "--type", "a", "--state", "scheduled", "--order", "created_asc")
    header, *lines = rows.stdout.splitlines()
    assert header.split()[:5] == ["JOB", "TYPE", "STATE", "ATTEMPT", "PRIORITY"]
    assert [line.split()[0] for line in lines] == [ids[1], ids[3]]
    assert "n=1 region=eu" in lines[0]
    first = stage.type("list", "--limit", "2")
    assert "2 of 5 jobs; --all shows all" in first.stderr
    cursor = stage.json("list", "--limit", "2")["next_cursor"]
    rest = stage.json("list", "--limit", "2", "--cursor", cursor)
    assert [job["job_id"] for job in rest["jobs"]] == [ids[2], ids[1]]
    only = stage.type("list", "--all", "--created-after", "1h", "-o", "ids")
    assert only.stdout.split() == ids[::-1]
    each = stage.type("list", "--all", "--priority", "normal", "-o", "jsonl")
    assert [json.loads(line)["job_id"] for line in each.stdout.splitlines()] == ids[::-1]
    everything = stage.json("list", "--all")
    assert (len(everything["jobs"]), everything["total_count"]) == (5, 5)
    assert set(everything) == set(whole)
    none = stage.type("list", "--state", "FAILED", "--tag", "region=eu")
    assert (none.exit_code, none.stdout) == (0, "")
    assert none.stderr == f"no such jobs in namespace {stage.namespace}\n"


def test_failures_from_the_list_to_the_retry(stage: Stage) -> None:
    ids = [submitted(stage, "email", str(n)) for n in range(3)]
    for _ in ids[:2]:
        stage.fail("SMTP_DOWN", message="no \x1b[31manswer")
    stage.fail("BAD_ADDRESS")
    page = stage.type("failures", "--failed-after", "1h")
    assert page.exit_code == 0
    counted = [line.split() for line in page.stdout.splitlines()]
    assert ["SMTP_DOWN", "2"] in counted
    assert ["email", "3"] in counted
    assert "no \\x1b[31manswer" in page.stdout
    told = stage.json("failures", "--code", "SMTP_DOWN")
    assert set(told) == set(models.FailureSearchResult.model_fields)
    assert told["total_count"] == 2
    assert stage.json("failures", "--code", "SMTP_DOWN", "--all") == told
    found = stage.type("failures", "--code", "SMTP_DOWN", "--all", "-o", "ids").stdout
    assert set(found.split()) == set(ids[:2])
    story = stage.type("failures", ids[0])
    assert "attempt 1 FAILURE" in story.stdout
    assert "PERMANENT SMTP_DOWN" in story.stdout
    assert len(stage.json("failures", ids[0])["attempts"]) == 1
    look = stage.type("retry", "--code", "SMTP_DOWN", "--dry-run")
    assert look.stdout.splitlines()[0] == "2 jobs would be queued"
    assert stage.json("retry", "-", stdin=found)["queued"] == 2
    assert (
        stage.json("retry", ids[2], "--priority", "low", "--reset-attempts")["status"] == "QUEUED"
    )
    assert stage.json("retry", ids[2], "--delay", "1h")["new_state"] == "RETRYING"
    never = stage.type("failures", submitted(stage, "other", "null"))
    assert never.exit_code == 1
    assert "has never failed" in never.stderr
    assert "--namespace" not in never.stderr


def test_what_a_job_logged(stage: Stage) -> None:
    silent = submitted(stage, "silent", "null")
    assert (done := stage.type("logs", silent)).exit_code == 0
    assert (done.stdout, done.stderr) == ("", "no lines\n")
    stage.complete()
    submitted(stage, "email", "null")
    job_id = stage.log("to \x1b[31mada", size=7)
    told = stage.type("logs", job_id, "--attempt", "1", "--lines", "5").stdout
    assert told == ("attempt 1\n2026-01-01 12:00:00.000000 INFO to \\x1b[31mada size=7\n")
    [attempt] = stage.json("logs", job_id)["attempts"]
    assert attempt["lines"][0]["fields"] == {"size": 7}
    missing = stage.type("logs", "missing")
    assert (missing.exit_code, "does not exist" in missing.stderr) == (1, True)


def test_all_that_match_are_cancelled_and_deleted(stage: Stage) -> None:
    for n in range(4):
        submitted(stage, "resize", str(n), "--tag", f"size={n % 2}")
    assert stage.json("cancel", "--tag", "size=0", "--dry-run")["cancelled"] == 2
    refused = stage.type("cancel", "--tag", "size=0")
    assert refused.exit_code == 2
    assert "2 jobs would be cancelled: give --yes" in refused.stderr
    assert stage.json("list", "--state", "CANCELLED")["total_count"] == 0
    assert stage.type("cancel", "--tag", "size=0", "--yes").stdout == "2 jobs cancelled\n"
    told = stage.json("delete", "--all", "--yes")
    assert (told["deleted"], told["failed"]) == (2, 0)
    waits = submitted(stage, "resize", "1")
    left = stage.type("delete", waits, "none").stdout
    assert left == "0 jobs deleted, 1 skipped (not ended yet), 1 failed\n"
    assert stage.type("delete", waits).stderr.count("cancel it first") == 1
    missing = stage.type("delete", "none", "neither")
    assert missing.exit_code == 1
    assert missing.stdout == "0 jobs deleted, 2 failed\n"


def test_pauses(stage: Stage) -> None:
    told = stage.type("pause", "email", "--reason", "mail is down")
    assert f"queue-operator resume email --namespace {stage.namespace}" in told.stdout
    job_id = submitted(stage, "email", "null")
    why = stage.type("why", job_id).stdout
    assert "type email is paused by tests: mail is down; `queue-operator resume email`" in why
    assert stage.json("pause", "--yes")["type"] == ""
    assert [one["type"] for one in stage.json("pause", "--list")["pauses"]] == ["", "email"]
    assert "mail is down" in stage.type("pause", "--list").stdout
    assert "paused: everything, email" in stage.type("top").stdout
    wrong = stage.type("resume", "sms")
    assert wrong.exit_code == 1
    assert "there is no such pause; paused: namespace" in wrong.stderr
    assert stage.json("resume", "--all") == {"resumed": True}
    assert stage.type("resume").stderr == "nothing is paused\n"
    assert stage.type("pause", "--list").stderr == "nothing is paused\n"


def test_everybody_is_told_the_same_verdict(stage: Stage, dsn: str) -> None:
    job_id = submitted(stage, "email", "null")
    # They are asked one after the other, and half an hour passes before it is told otherwise.
    aged(dsn, job_id, "2 days 4.5 hours")
    stage.type("pause", "email", "--reason", "mail is down")
    sentence = "Stuck: email is paused by tests (mail is down), and 1 job waits, for 2 d 4 h."
    with stage.client() as queue:
        assert queue.verdict(namespace=stage.namespace).sentence == sentence
    why = stage.type("why")
    assert why.stdout.splitlines()[0] == sentence
    assert f"queue-operator resume email --namespace {stage.namespace}" in why.stdout
    assert sentence in stage.type("top", "--once").stdout.splitlines()
    assert stage.json("why")["sentence"] == sentence
    assert stage.json("top", "--once")["verdict"]["sentence"] == sentence
    assert stage.type("why", "--type", "email").stdout.splitlines()[0] == sentence
    assert "Healthy: " in stage.type("why", "--type", "sms").stdout
    both = stage.type("why", "x", "--type", "email")
    assert (both.exit_code, "give JOB_ID or --type" in both.stderr) == (2, True)
    many = stage.type("top", "--once", "--count", "2")
    assert (many.exit_code, "give --once or --count" in many.stderr) == (2, True)


def aged(dsn: str, job_id: str, age: str) -> None:
    """As if the job, which waits, had been due for so long."""
    with psycopg.connect(dsn) as connection:
        done = connection.execute(
            "UPDATE queue_operator.ready SET eligible_at = eligible_at - %s::interval"
            " WHERE job_no = (SELECT job_no FROM queue_operator.job WHERE id = %s)",
            [age, job_id],
        )
    assert done.rowcount == 1


def test_suspended_jobs(stage: Stage) -> None:
    job_id = submitted(stage, "email", "null", "--suspended")
    assert f"queue-operator resume --job {job_id}" in stage.type("why", job_id).stdout
    assert "until it is resumed" in stage.type("get", job_id).stdout
    assert stage.json("resume", "--job", job_id)["suspended"] is False
    told = stage.type("suspend", job_id)
    assert told.stdout == f"{job_id}: the job waits until it is resumed\n"
    both = stage.type("resume", "email", "--job", job_id)
    assert (both.exit_code, "give --job alone" in both.stderr) == (2, True)
    missing = stage.type("suspend", "none")
    assert missing.exit_code == 1
    assert "none" in missing.stderr


def test_numbers(stage: Stage) -> None:
    submitted(stage, "email", "null")
    stage.complete()
    told = stage.json("stats", "--by", "type", "--by", "priority", "--by", "state", "--range", "5m")
    assert set(told) == set(models.QueueStats.model_fields)
    assert told["by_type"]["email"]["completed"] == 1
    page = stage.type("stats", "--by", "type").stdout
    assert "1 completed, 0 failed" in page
    assert page.splitlines()[-1].split()[:4] == ["email", "0", "0", "1"]
    top = stage.json("top", "--count", "1")
    assert top["completed"] == 1


def test_a_file_of_jobs_is_stored_once(stage: Stage, tmp_path: Path) -> None:
    file = tmp_path / "jobs.jsonl"
    lines = [{"payload": n} for n in range(2500)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"delay": "soon"}\n')
    arguments = ("submit", "ping", "--file", str(file), "--run-id", "r1")
    first, again = (stage.json(*arguments, exit_code=1) for _ in range(2))
    assert (first["accepted"], first["duplicates"], first["rejected"]) == (2500, 0, 1)
    assert (again["accepted"], again["duplicates"], again["rejected"]) == (2500, 2500, 1)
    assert [error["line"] for error in first["errors"]] == [2501]
    assert stage.json("list", "--limit", "1")["total_count"] == 2500


BAD_LINES = {
    100: (b'{"type":"t","payload":{"v":1e999}}', "payload: cannot be written as JSON: NaN"),
    700: (b'{"type":"t","payload":"\\ud800"}', "payload: cannot be written as JSON: half a"),
    1500: (b'{"type":"t","payload":{"v":NaN}}', "payload: cannot be written as JSON: NaN"),
    1501: (b'{"type":"t","payload":"\xff"}', "is not UTF-8: invalid start byte at byte 24"),
    1600: (b'{"type":"t","payload":1,"tags":{"\\ud800":"a"}}', "tags: cannot be written"),
    1700: (b'{"type":"t","payload":' + b"[" * 120 + b"]" * 120 + b"}", "nested"),
    1800: (b'{"type":"t","payload":' + b"[" * 240 + b"]" * 240 + b"}", "recursion limit"),
    1900: (b'{"type":"t","payload":' + b"[" * 5000 + b"]" * 5000 + b"}", "nested too deeply"),
    2000: (b'{"type":"t","payload":' + b"1" * 5000 + b"}", "4300 digits"),
    2100: (b'{"type":"t","payload":"' + b"x" * 2**21 + b'"}', "over the limit of 1048576"),
    2200: (b'{"type":"t","payload":"' + b"x" * 2**26 + b'"}', "over the limit of"),
    2300: (b'{"type":"t","payload":1,"backoff":{"multiplier":1e999}}', "backoff: cannot be"),
}


def test_a_line_that_cannot_be_stored_keeps_no_other_from_being_stored(
    stage: Stage, tmp_path: Path
) -> None:
    file = tmp_path / "jobs.jsonl"
    good = b'{"type":"t","payload":1}'
    lines = [BAD_LINES.get(number, (good, ""))[0] for number in range(1, 2501)]
    file.write_bytes(b"\n".join(lines))
    arguments = ("submit", "--file", str(file), "--run-id", "r1")
    first, again = (stage.json(*arguments, exit_code=1) for _ in range(2))
    assert (first["accepted"], first["rejected"]) == (2500 - len(BAD_LINES), len(BAD_LINES))
    assert (again["duplicates"], again["rejected"]) == (2500 - len(BAD_LINES), len(BAD_LINES))
    told = {error["line"]: error["message"] for error in first["errors"]}
    assert set(told) == set(BAD_LINES)
    for number, (_, why) in BAD_LINES.items():
        assert why in told[number], (number, told[number])
    done = stage.type(*arguments)
    assert "line 1500: payload: cannot be written as JSON: NaN and Infinity" in done.stderr
    dry = stage.json(*arguments, "--dry-run", exit_code=1)
    assert {error["line"] for error in dry["errors"]} == set(BAD_LINES)


@pytest.mark.parametrize("name", ["get", "why", "failures"])
def test_a_job_of_another_namespace_is_not_there(stage: Stage, name: str) -> None:
    job_id = submitted(stage, "t", "null")
    done = stage.type(name, job_id, "--namespace", "elsewhere")
    assert done.exit_code == 1
    assert "does not exist in namespace 'elsewhere'" in done.stderr


def test_an_address_beside_the_api_is_no_missing_job(stage: Stage) -> None:
    assert stage.type("list", "--url", f"{stage.url}/v1").exit_code == 0
    wrong = stage.type("get", "x", "--url", f"{stage.url}/elsewhere")
    assert wrong.exit_code == 1
    assert "the URL does not lead to the REST API of a queue operator (request " in wrong.stderr
    assert "--namespace" not in wrong.stderr


def test_who_may_not_is_told_how_to_get_a_token(stage: Stage) -> None:
    done = stage.type("stats", "--token", "wrong")
    assert done.exit_code == 1
    assert "kubectl create token" in done.stderr
