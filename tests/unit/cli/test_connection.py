"""Which server, as whom, and what is said when it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.typed import NOBODY, typed
from tests.unit.client.scripted import Answer, serving

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
    assert set(error) == {"code", "message", "hint"}
    assert error["code"]


def test_a_server_that_is_not_there_is_one_line_and_a_hint() -> None:
    done = typed("retry", "x")
    assert done.exit_code == 1
    first, second = done.stderr.splitlines()
    assert first.startswith("error: the queue operator cannot be reached")
    assert first.endswith(f"[{NOBODY}]")
    assert "QUEUE_OPERATOR_URL" in second
