"""Files of jobs, line by line accounted for."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.typed import document, typed
from tests.unit.client.scripted import Answer, Script, serving

from queue_operator.cli.checking import refusal
from queue_operator.cli.connection import Refused, Remote
from queue_operator.cli.loading import Plan, load
from queue_operator.client import Submission
from queue_operator.domain.validation import DEFAULT_LIMITS


def lines(path: Path, *jobs: Any) -> str:
    file = path / "jobs.jsonl"
    file.write_text("\n".join(one if isinstance(one, str) else json.dumps(one) for one in jobs))
    return str(file)


def stored(*statuses: str) -> Answer:
    results = [
        {"job_id": f"j{n}", "status": status}
        if status != "REJECTED"
        else {"status": status, "error": {"code": "DUPLICATE", "message": "is taken"}}
        for n, status in enumerate(statuses)
    ]
    rejected = statuses.count("REJECTED")
    body = {"total": len(results), "accepted": len(results) - rejected, "rejected": rejected}
    return Answer(200, {**body, "results": results})


def sent(script: Script) -> list[dict[str, Any]]:
    return [job for asked in script.asked for job in asked.body["jobs"]]


def test_every_line_is_accounted_for(tmp_path: Path) -> None:
    file = lines(
        tmp_path,
        {"type": "a", "payload": 1},
        "",
        "{broken",
        "[1]",
        {"type": "a", "payload": 1, "color": "red"},
        {"type": "a", "payload_base64": "AA==", "delay": "PT5M"},
        {"type": "a", "payload": 1, "job_id": "taken"},
    )
    with serving(stored("ACCEPTED", "DUPLICATE", "REJECTED")) as script:
        done = typed("submit", "--file", file, "-o", "json", server=script)
    assert done.exit_code == 1
    told = json.loads(done.stdout)
    errors = told.pop("errors")
    assert told == {
        "total": 6,
        "accepted": 2,
        "duplicates": 1,
        "rejected": 4,
        "dry_run": False,
    }
    assert [error["line"] for error in errors] == [3, 4, 5, 7]
    assert "color" in errors[2]["message"]
    assert errors[3] == {"line": 7, "code": "DUPLICATE", "message": "is taken"}
    first, second, _ = sent(script)
    assert first["payload"] == 1
    assert (second["payload_base64"], second["delay"]) == ("AA==", "PT5M")
    assert script.asked[0].body["atomic"] is False


def test_what_lines_leave_out_is_taken_from_the_options(tmp_path: Path) -> None:
    file = lines(
        tmp_path,
        {"payload": 1},
        {"type": "own", "payload": 2, "priority": "HIGH", "tags": {"region": "us", "a": "b"}},
    )
    options = ["general", "--priority", "low", "--tag", "region=eu", "--delay", "5m"]
    with serving(stored("ACCEPTED", "ACCEPTED")) as script:
        assert document("submit", *options, "--file", file, server=script)["accepted"] == 2
    first, second = sent(script)
    assert (first["type"], first["priority"], first["tags"]) == ("general", "LOW", {"region": "eu"})
    assert (second["type"], second["priority"]) == ("own", "HIGH")
    assert second["tags"] == {"region": "us", "a": "b"}
    assert first["delay"] == second["delay"] == "PT5M"


def test_a_run_id_makes_the_same_keys_each_time(tmp_path: Path) -> None:
    file = lines(
        tmp_path,
        {"type": "a", "payload": 1},
        "",
        {"type": "a", "payload": 1, "idempotency_key": "own"},
    )
    with serving(stored("ACCEPTED", "ACCEPTED")) as script:
        document("submit", "--file", file, "--run-id", "run-7", server=script)
    assert [job["idempotency_key"] for job in sent(script)] == ["run-7:1", "own"]


def test_lines_come_from_standard_input_in_batches() -> None:
    text = "\n".join(json.dumps({"type": "a", "payload": n}) for n in range(5))
    answers = stored("ACCEPTED", "ACCEPTED"), stored("ACCEPTED", "ACCEPTED"), stored("ACCEPTED")
    with serving(*answers) as script:
        told = document("submit", "--file", "-", "--batch-size", "2", server=script, stdin=text)
    assert told["accepted"] == 5
    assert [len(asked.body["jobs"]) for asked in script.asked] == [2, 2, 1]


def test_as_lines_each_result_is_told(tmp_path: Path) -> None:
    file = lines(tmp_path, {"type": "a", "payload": 1}, "nonsense", {"type": "a", "payload": 1})
    with serving(stored("ACCEPTED", "REJECTED")) as script:
        done = typed("submit", "--file", file, "-o", "jsonl", server=script)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert {one["line"]: one["status"] for one in told} == {
        1: "ACCEPTED",
        2: "REJECTED",
        3: "REJECTED",
    }
    assert "1 job submitted; 2 lines rejected" in done.stderr


def test_a_dry_run_checks_and_sends_nothing(tmp_path: Path) -> None:
    file = lines(tmp_path, {"type": "a", "payload": 1}, {"payload": 1}, {"type": "a"})
    done = typed("submit", "--file", file, "--dry-run")
    assert done.exit_code == 1
    assert done.stdout == "1 job would be submitted; 2 lines rejected\n"
    first, second = done.stderr.splitlines()
    assert first == "line 2: type: Field required"
    assert second == "line 3: give payload or payload_bytes; payload may be null"


@pytest.mark.parametrize("run", [[], ["--run-id", "r"]])
def test_a_failure_on_the_way_says_how_far_it_came(tmp_path: Path, run: list[str]) -> None:
    file = lines(tmp_path, *[{"type": "a", "payload": n} for n in range(4)])
    refused = Answer(403, {"code": "FORBIDDEN", "message": "not any more"})
    with serving(stored("ACCEPTED", "ACCEPTED"), refused) as script:
        done = typed("submit", "--file", file, "--batch-size", "2", *run, server=script)
    assert done.exit_code == 1
    assert done.stdout == "2 jobs submitted\n"
    assert "line 2 was the last that was settled" in done.stderr
    assert ("not stored twice" in done.stderr) == bool(run)
    assert "error: not any more" in done.stderr


def test_a_server_that_is_away_for_a_while_is_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pauses: list[float] = []
    away = Answer(503, {"code": "INTERNAL_ERROR", "message": "away"}, {"retry-after": "60"})
    file = Path(lines(tmp_path, {"type": "a", "payload": 1}))
    with serving(*[away] * 10, stored("ACCEPTED")) as script:
        remote = Remote(script.url, None, None, "table")
        load(Plan(remote, {}, None, 1000, pauses.append), file, dry_run=False)
    assert pauses == [60.0] * 10
    said = capsys.readouterr()
    assert said.out == "1 job submitted\n"
    assert (
        said.err.splitlines()
        == ["the server is away, or a quota is used up: trying again in 60 s"] * 10
    )


def no_room(*accepted: str, jobs: int = 1, retry_after: str = "PT1S", **quota: Any) -> Answer:
    told = {"limit": "pending_jobs", "current": 5, "maximum": 5, "retry_after": retry_after}
    message = "pending_jobs: 5 of 5 used; retry in 1 s"
    error = {"code": "QUOTA_EXCEEDED", "message": message, "quota": {**told, **quota}}
    results: list[dict[str, Any]] = [{"job_id": one, "status": "ACCEPTED"} for one in accepted]
    results += [{"status": "REJECTED", "error": error}] * jobs
    body = {"total": len(results), "accepted": len(accepted), "rejected": jobs}
    return Answer(200, {**body, "results": results})


def test_waiting_for_a_quota_is_told_with_its_name_and_for_how_long(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pauses: list[float] = []
    file = Path(lines(tmp_path, *[{"type": "a", "payload": n} for n in range(3)]))
    answers = [
        no_room("a", jobs=2),
        no_room(jobs=2),
        *[no_room(jobs=2, retry_after="PT1M")] * 2,
        no_room("b", retry_after="PT1M"),
        stored("ACCEPTED"),
    ]
    with serving(*answers) as script:
        remote = Remote(script.url, None, None, "table")
        load(Plan(remote, {}, None, 1000, pauses.append), file, dry_run=False)
    said = capsys.readouterr()
    assert said.out == "3 jobs submitted\n"
    assert pauses == [1, 1, 60, 60, 60]
    # At first, and then not with every short pause.
    quota = "within the quota pending_jobs (5 of 5 used): trying again in"
    assert said.err.splitlines() == [
        f"no room for 2 jobs {quota} 1s (try 1 of 60; Ctrl-C ends it)",
        f"no room for 2 jobs {quota} 1m, after 2s (try 3 of 60; Ctrl-C ends it)",
        f"no room for 2 jobs {quota} 1m, after 1m2s (try 4 of 60; Ctrl-C ends it)",
        f"no room for 1 job {quota} 1m (try 1 of 60; Ctrl-C ends it)",
    ]


def test_a_quota_that_leaves_no_room_ends_it_with_what_was_lacking(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pauses: list[float] = []
    file = Path(lines(tmp_path, *[{"type": "a", "payload": n} for n in range(4)]))
    with serving(no_room("a"), no_room()) as script:
        remote = Remote(script.url, None, None, "table")
        with pytest.raises(Refused) as ended:
            load(Plan(remote, {}, "r", 2, pauses.append), file, dry_run=False)
        # Neither are the other batches tried.
        assert {len(asked.body["jobs"]) for asked in script.asked} == {2, 1}
    assert len(pauses) == 59
    assert ended.value.exit_code == 1
    assert "pending_jobs: 5 of 5 used" in ended.value.message
    assert "1 job not stored, after 60 tries" in ended.value.message
    said = capsys.readouterr()
    assert said.out == "1 job submitted; 1 line rejected\n"
    assert "not stored twice" in said.err


def test_a_quota_that_has_no_room_for_hours_is_not_waited_for(tmp_path: Path) -> None:
    file = lines(tmp_path, {"type": "a", "payload": 1})
    with serving(no_room(retry_after="PT5H", limit="submissions_per_s")) as script:
        done = typed("submit", "--file", file, server=script)
        told = typed("submit", "--file", file, "-o", "json", server=script)
    assert done.exit_code == told.exit_code == 1
    assert "no room for 5h" in done.stderr
    assert "ask for a larger quota" in done.stderr
    assert json.loads(told.stderr.splitlines()[-1])["error"]["code"] == "QUOTA_EXCEEDED"
    assert len(script.asked) == 2


def test_ctrl_c_ends_the_wait_for_a_quota(tmp_path: Path) -> None:
    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    file = Path(lines(tmp_path, {"type": "a", "payload": 1}))
    with serving(no_room()) as script:
        plan = Plan(Remote(script.url, None, None, "table"), {}, None, 1000, interrupted)
        with pytest.raises(KeyboardInterrupt):
            load(plan, file, dry_run=False)


def test_rejections_are_listed_up_to_a_bound(tmp_path: Path) -> None:
    file = lines(tmp_path, *["nonsense"] * 1500)
    done = typed("submit", "--file", file)
    assert done.exit_code == 1
    assert done.stdout == "0 jobs submitted; 1,500 lines rejected\n"
    assert done.stderr.count("line ") == 20
    assert "and 1,480 more" in done.stderr
    told = json.loads(typed("submit", "--file", file, "-o", "json").stdout)
    assert (told["rejected"], len(told["errors"])) == (1500, 1000)


def test_one_job_is_shown_as_it_would_be_sent() -> None:
    done = typed("submit", "a", '{"n": 1}', "--delay", "90s", "--depends-on", "x", "--dry-run")
    assert json.loads(done.stdout) == {
        "type": "a",
        "payload": {"n": 1},
        "delay": "PT1M30S",
        "depends_on": ["x"],
    }


@pytest.mark.parametrize(
    ("arguments", "stdin", "field", "value"),
    [
        (["[1, null]"], None, "payload", [1, None]),
        (["-"], '{"a": "ü"}', "payload", {"a": "ü"}),
        (["@{file}"], None, "payload", {"b": 2}),
        (["null"], None, "payload", None),
        (["ü", "--raw"], None, "payload_base64", "w7w="),
        (["-", "--raw"], b"\x00\xff", "payload_base64", "AP8="),
    ],
)
def test_where_a_payload_comes_from(
    tmp_path: Path, arguments: list[str], stdin: str | bytes | None, field: str, value: Any
) -> None:
    file = tmp_path / "payload.json"
    file.write_text('{"b": 2}')
    arguments = [text.format(file=file) for text in arguments]
    done = typed("submit", "a", *arguments, "--dry-run", stdin=stdin)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)[field] == value


def test_every_option_of_a_submission() -> None:
    told = typed(
        *("submit", "a", "1", "--dry-run", "--job-id", "j", "--key", "k", "--priority", "bulk"),
        *("--at", "2030-01-01T00:00:00Z", "--timeout", "1m", "--max-attempts", "3"),
        *("--tag", "region=eu", "--tag", "urgent", "--correlation-id", "c"),
        *("--depends-on", "x", "--depends-on", "y", "--dependency-type", "chain"),
        *("--callback-url", "https://a/b", "--backoff", "custom"),
        *("--retry-delay", "1s", "--retry-delay", "1m"),
    )
    assert json.loads(told.stdout) == {
        "type": "a",
        "payload": 1,
        "job_id": "j",
        "idempotency_key": "k",
        "priority": "BULK",
        "scheduled_at": "2030-01-01T00:00:00Z",
        "timeout": "PT1M",
        "max_attempts": 3,
        "tags": {"region": "eu", "urgent": ""},
        "correlation_id": "c",
        "depends_on": ["x", "y"],
        "dependency_type": "CHAIN",
        "callback_url": "https://a/b",
        "backoff": {"strategy": "CUSTOM", "delays": ["PT1S", "PT1M"]},
    }


def test_a_dry_run_refuses_what_the_server_would(tmp_path: Path) -> None:
    file = lines(
        tmp_path,
        {"type": "t", "payload": 1, "delay": -1},
        {"type": "t", "payload": 1},
        {"type": "", "payload": 1, "max_attempts": 101},
        {"type": "t", "payload": 1, "job_id": "a", "depends_on": ["a"]},
        {"type": "t", "payload": 1, "delay": 1, "scheduled_at": "2030-01-31T12:00:00Z"},
    )
    done = typed("submit", "--file", file, "--dry-run", "-o", "json")
    assert done.exit_code == 1
    told = json.loads(done.stdout)
    assert (told["total"], told["accepted"]) == (5, 1)
    first, second, third, fourth = told["errors"]
    expected = {"line": 1, "code": "INVALID_REQUEST", "message": "delay: must not be negative"}
    assert first == expected
    assert (second["line"], third["line"], fourth["line"]) == (3, 4, 5)
    assert "type: " in second["message"]
    assert "(and 1 more)" in second["message"]
    assert "depends_on" in third["message"]
    assert "not both" in fourth["message"]


@pytest.mark.parametrize(
    "given",
    [
        {"payload": "x" * (DEFAULT_LIMITS.payload_bytes + 1)},
        {"payload": 1, "job_id": "x" * (DEFAULT_LIMITS.id_characters + 1)},
        {"payload": json.loads("[" * 101 + "]" * 101)},
    ],
    ids=["payload", "id", "depth"],
)
def test_a_dry_run_says_where_it_is_a_matter_of_limits(given: dict[str, Any]) -> None:
    refused = refusal(Submission(type="t", **given))
    assert refused is not None
    assert refused[1].endswith("(by the usual limits; those of the server may be others)")
    wrong = refusal(Submission(type="t", max_attempts=101, **given))
    assert wrong is not None
    assert "usual limits" in wrong[1]
    refused = refusal(Submission(type="t", payload=1, max_attempts=101))
    assert refused is not None
    assert "usual limits" not in refused[1]


def test_a_dry_run_of_one_job_too() -> None:
    done = typed(
        "submit", "a", "1", "--max-attempts", "3", "--callback-url", "ftp://x", "--dry-run"
    )
    assert done.exit_code == 2
    assert "callback_url: " in done.stderr
