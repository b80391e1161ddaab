"""Characters that a terminal cannot show, and bytes of a shell that are no characters."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.typed import typed
from tests.unit.client.scripted import Answer, Script, serving

BYTES = os.fsdecode(b"\xff")
"""As Python has an argument of that one byte."""
JOB: dict[str, Any] = {
    "job_id": "the-job",
    "namespace": "n",
    "type": "caf\u00e9\u65e5",
    "state": "RUNNING",
    "attempt": 1,
    "priority": "NORMAL",
}
PAGE = Answer(200, {"jobs": [JOB], "next_cursor": None, "has_more": False, "total_count": 1})
ALONE = Answer(200, JOB)


def run(script: Script, encoding: str, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
    program = "from queue_operator.cli.main import main; main()"
    environment = {"PYTHONIOENCODING": encoding, "QUEUE_OPERATOR_URL": script.url}
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [
        ("ascii", b"caf\\xe9\\u65e5  RUNNING"),
        ("latin-1", b"caf\xe9\\u65e5  RUNNING"),
        ("utf-8", "caf\u00e9\u65e5  RUNNING".encode()),
    ],
)
def test_a_terminal_gets_what_it_can_hold(encoding: str, shown: bytes) -> None:
    with serving(PAGE) as script:
        done = run(script, encoding, "list")
    assert (done.returncode, done.stderr) == (0, b"")
    assert shown in done.stdout


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
@pytest.mark.parametrize("output", ["json", "jsonl", "ids"])
def test_what_is_for_programs_is_whole_in_every_encoding(encoding: str, output: str) -> None:
    with serving(PAGE) as script:
        done = run(script, encoding, "list", "-o", output)
    assert (done.returncode, done.stderr) == (0, b"")
    if output == "ids":
        assert done.stdout == b"the-job\n"
        return
    told = json.loads(done.stdout.decode(encoding))
    assert (told["jobs"][0] if output == "json" else told)["type"] == JOB["type"]
    assert ("\u65e5".encode() in done.stdout) == (encoding == "utf-8")


def test_an_error_that_the_terminal_cannot_hold_is_told_all_the_same() -> None:
    with serving(Answer(404, {"code": "NOT_FOUND", "message": "no \u65e5 here"})) as script:
        done = run(script, "latin-1", "get", "\u65e5")
    assert done.returncode == 1
    assert done.stderr.startswith(b"error: no \\u65e5 here")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["get", BYTES], "JOB_ID"),
        (["cancel", "a", BYTES], "JOB_ID"),
        (["submit", BYTES, "1"], "TYPE"),
        (["submit", "t", "1", "--tag", f"a={BYTES}"], "--tag"),
        (["submit", "t", "1", "--depends-on", BYTES], "--depends-on"),
        (["list", "--type", "a", "--type", BYTES], "--type"),
        (["pause", "t", "--reason", BYTES], "--reason"),
        (["stats", "--url", f"http://{BYTES}"], "--url"),
        (["stats", "--token", BYTES], "--token"),
        (["migrate", "--dsn", BYTES], "--dsn"),
        (["pipeline", "run", "--dsn", BYTES, "--lake", "x"], "--dsn"),
        (["dev", "up", "--name", BYTES], "--name"),
    ],
)
def test_an_argument_that_is_no_text_is_named(arguments: list[str], named: str) -> None:
    done = typed(*arguments)
    assert done.exit_code == 2, done.output
    assert named in done.stderr
    assert r"is not UTF-8: " in done.stderr
    assert r"\xff" in done.stderr


def test_programs_are_told_so_too() -> None:
    done = typed("get", BYTES, "-o", "json")
    assert json.loads(done.stderr)["error"]["code"] == "USAGE"


def test_a_payload_that_is_no_text_is_bytes_or_no_json() -> None:
    told = typed("submit", "t", f'"{BYTES}"', "--dry-run")
    assert told.exit_code == 2
    assert "PAYLOAD: is not UTF-8" in told.stderr
    done = typed("submit", "t", f'"{BYTES}"', "--raw", "--dry-run")
    assert (done.exit_code, json.loads(done.stdout)["payload_base64"]) == (0, "Iv8i")


def test_a_file_may_have_any_name(tmp_path: Path) -> None:
    file = tmp_path / BYTES
    file.write_text('{"type": "t", "payload": 1}')
    done = typed("submit", "--file", str(file), "--dry-run")
    assert (done.exit_code, done.stdout) == (0, "1 job would be submitted\n")
    assert typed("submit", "t", f"@{file}", "--dry-run").exit_code == 0


@pytest.mark.parametrize("text", ["NaN", "[Infinity]"])
def test_what_is_no_number_is_no_json(text: str) -> None:
    done = typed("submit", "t", text)
    assert done.exit_code == 2
    assert "is no number there" in done.stderr
