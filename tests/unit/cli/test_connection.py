"""Which server, as whom, and what is said when it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.typed import NOBODY, typed
from tests.unit.client.scripted import Answer, serving

from queue_operator.cli.connection import Patience, Refused, Remote

PAUSES = Answer(200, {"pauses": []})


def refusal(status: int, code: str, **others: Any) -> Answer:
    return Answer(status, {"code": code, "message": f"told {code}", **others})


@pytest.mark.parametrize(
    ("arguments", "environment", "header", "path"),
    [
        ([], {}, None, "/v1/pauses"),
        (["--token", "a", "-n", "shop"], {}, "Bearer a", "/v1/pauses?namespace=shop"),
        ([], {"QUEUE_OPERATOR_TOKEN": "b"}, "Bearer b", "/v1/pauses"),
        ([], {"QUEUE_OPERATOR_NAMESPACE": "shop"}, None, "/v1/pauses?namespace=shop"),
        (["--token-file", "{file}"], {}, "Bearer from-file", "/v1/pauses"),
        ([], {"QUEUE_OPERATOR_TOKEN_FILE": "{file}"}, "Bearer from-file", "/v1/pauses"),
        # What is typed wins.
        (
            ["--token-file", "{file}"],
            {"QUEUE_OPERATOR_TOKEN": "b"},
            "Bearer from-file",
            "/v1/pauses",
        ),
        (["--token", "a"], {"QUEUE_OPERATOR_TOKEN_FILE": "{file}"}, "Bearer a", "/v1/pauses"),
    ],
)
def test_options_and_variables(
    tmp_path: Path,
    arguments: list[str],
    environment: dict[str, str],
    header: str | None,
    path: str,
) -> None:
    file = tmp_path / "token"
    file.write_text("from-file\n")
    arguments = [text.format(file=file) for text in arguments]
    environment = {name: text.format(file=file) for name, text in environment.items()}
    with serving(PAUSES) as script:
        done = typed("pause", "--list", *arguments, server=script, **environment)
    assert done.exit_code == 0, done.output
    (asked,) = script.asked
    assert (asked.headers.get("authorization"), asked.path) == (header, path)


def test_two_tokens_are_one_too_many() -> None:
    done = typed("pause", "--list", "--token", "a", "--token-file", "b")
    assert done.exit_code == 2
    assert "give --token or --token-file, not both" in done.stderr


def test_an_address_that_is_none_is_a_wrong_option() -> None:
    done = typed("get", "x", "--url", "localhost:8080")
    assert done.exit_code == 2
    assert "--url: 'localhost:8080' must be that of the REST port" in done.stderr


def test_a_token_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with serving(PAUSES) as script:
        file = str(tmp_path / "none")
        done = typed("pause", "--list", "--token-file", file, server=script)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == f"error: {file}: No such file or directory\n"


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (refusal(401, "UNAUTHORIZED"), "kubectl create token NAME --audience queue-operator"),
        (refusal(403, "FORBIDDEN"), "queuejobs.queueoperator.dev"),
        (refusal(404, "NOT_FOUND"), "is --namespace right?"),
        (
            refusal(
                429,
                "QUOTA_EXCEEDED",
                quota={"limit": "jobs", "current": 1, "maximum": 1, "retry_after": "PT1H"},
            ),
            "try again in 3600 s",
        ),
        (refusal(500, "INTERNAL_ERROR", request_id="r1"), "(request r1)"),
        (refusal(400, "INVALID_REQUEST"), "told INVALID_REQUEST"),
    ],
)
def test_a_refusal_says_what_to_do(answer: Answer, hint: str) -> None:
    headers = {"retry-after": "3600"}
    with serving(Answer(answer.status, answer.body, headers)) as script:
        done = typed("get", "x", server=script)
        told = typed("get", "x", "-o", "json", server=script)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("error: ")
    assert hint in done.stderr
    assert "Traceback" not in done.stderr
    # For programs, the same as JSON.
    assert (told.exit_code, told.stdout) == (1, "")
    error = json.loads(told.stderr)["error"]
    assert {"code", "message", "hint", "request_id"} <= set(error)
    assert error["code"]


def test_programs_are_told_all_that_the_server_said() -> None:
    details = [{"field": "pending_jobs", "code": "QUOTA_EXCEEDED", "message": "full"}]
    quota = {"limit": "pending_jobs", "current": 1, "maximum": 1, "retry_after": "PT1H"}
    answer = refusal(429, "QUOTA_EXCEEDED", request_id="r1", details=details, quota=quota)
    with serving(Answer(429, answer.body, {"retry-after": "3600"})) as script:
        done = typed("get", "x", "-o", "json", server=script)
    error = json.loads(done.stderr)["error"]
    assert (error["request_id"], error["details"]) == ("r1", details)
    assert (error["quota"]["limit"], error["quota"]["retry_after_s"]) == ("pending_jobs", 3600.0)


def test_a_store_that_is_away_is_not_taken_for_a_wrong_url() -> None:
    with serving(refusal(503, "INTERNAL_ERROR", request_id="r1")) as script:
        done = typed("get", "x", server=script)
    first, second = done.stderr.splitlines()
    assert first.endswith(f"[{script.url}] (request r1)")
    assert "the server answers, so the URL is right" in second
    assert "QUEUE_OPERATOR_URL" not in second


def test_a_long_wait_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    away = refusal(503, "INTERNAL_ERROR", request_id="r1")
    pauses: list[float] = []
    with serving(Answer(503, away.body, {"retry-after": "9"})) as script:
        remote = Remote(script.url, None, None, "table")
        with pytest.raises(Refused), remote.connected(sleep=pauses.append) as queue:
            queue.get("x")
    assert pauses == [9.0] * 3
    assert capsys.readouterr().err == "the server cannot do it now; trying again …\n"


def test_short_waits_and_those_of_programs_are_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    Patience("table", lambda: 0.0).tell(1.9, None)
    Patience("json", lambda: 0.0).tell(60.0, None)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("end", ["/v1", "/v1/", "/"])
def test_the_address_of_the_api_is_as_good_as_that_of_the_server(end: str) -> None:
    with serving(PAUSES) as script:
        done = typed("pause", "--list", "--url", script.url + end)
        assert done.exit_code == 0, done.output
        assert script.asked[0].path == "/v1/pauses"


def test_an_address_of_something_else_is_no_missing_job() -> None:
    with serving(Answer(404, b"<html>who?</html>")) as script:
        done = typed("get", "x", server=script)
    assert done.exit_code == 1
    assert "the URL does not lead to the REST API of a queue operator" in done.stderr
    assert "--namespace" not in done.stderr


def test_one_hint_is_enough() -> None:
    told = "job 'x' is SCHEDULED: only a job that has ended can be deleted; cancel it first"
    with serving(Answer(409, {"code": "INVALID_REQUEST", "message": told})) as script:
        done = typed("delete", "x", server=script)
    assert done.exit_code == 1
    assert done.stderr.count("cancel it first") == 1


def test_a_server_that_is_not_there_is_one_line_and_a_hint() -> None:
    done = typed("retry", "x")
    assert done.exit_code == 1
    first, second = done.stderr.splitlines()
    assert first.startswith("error: the queue operator cannot be reached")
    assert first.endswith(f"[{NOBODY}]")
    assert "QUEUE_OPERATOR_URL" in second
