"""The command `queue-operator` as a user types it."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from pydantic import ValidationError
from tests.integration.serving import Server

from queue_operator import __version__
from queue_operator.cli.main import main
from queue_operator.cli.migrate import migrate
from queue_operator.cli.serve import serve
from queue_operator.devcluster.errors import DevClusterError
from queue_operator.devcluster.existing import require_database
from queue_operator.settings import Settings

PROGRAM = Path(sys.executable).with_name("queue-operator")


def call(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=False)


def test_help_names_every_command() -> None:
    done = call("--help")
    assert done.returncode == 0
    for command in ("serve", "migrate", "pipeline", "dev", "submit", "list", "top", "delete"):
        assert f"\n  {command} " in done.stdout


@pytest.mark.parametrize(
    "command", [["serve"], ["migrate"], ["pipeline", "run"], ["pipeline", "jars"], ["dev", "up"]]
)
def test_every_command_explains_itself(command: list[str]) -> None:
    done = call(*command, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith(f"Usage: queue-operator {' '.join(command)} [OPTIONS]")


def test_the_version_is_told() -> None:
    assert call("--version").stdout.strip() == f"queue-operator, version {__version__}"


def test_an_unknown_command_is_named_and_help_is_pointed_at() -> None:
    done = call("srve")
    assert done.returncode == 2
    assert "No such command 'srve'" in done.stderr
    assert "queue-operator --help" in done.stderr


def test_migrating_twice_changes_nothing_the_second_time(
    new_database: Callable[[], str],
) -> None:
    dsn = new_database()
    first, second = call("migrate", "--dsn", dsn), call("migrate", "--dsn", dsn)
    assert (first.returncode, second.returncode) == (0, 0)
    assert first.stdout.startswith("applied: 0001_initial")
    assert second.stdout == "the schema is up to date\n"


@pytest.mark.parametrize("command", [["migrate"], ["pipeline", "run", "--lake", "/nowhere"]])
def test_a_database_that_is_away_is_one_line(command: list[str]) -> None:
    done = call(*command, "--dsn", "postgresql://me:secret-word@127.0.0.1:1/none")
    assert done.returncode == 1
    *_, line = done.stderr.splitlines()
    assert "Connection refused" in line
    assert "secret-word" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("dsn", ["sqlite:///tmp/jobs.db", "memory://"])
def test_a_server_on_another_store_ends_at_once(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUEUE_OPERATOR_DATABASE__DSN", dsn)
    told = CliRunner().invoke(serve, [])
    assert told.exit_code == 1
    assert "QUEUE_OPERATOR_DATABASE__DSN" in told.stderr
    assert f"needs PostgreSQL, not {dsn.partition(':')[0]}" in told.stderr


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_server_writes_lines_for_programs_or_for_people(tmp_path: Path, form: str) -> None:
    settings = {"DATABASE__DSN": "postgresql://127.0.0.1:1/none", "LOGS__FORMAT": form}
    server = Server(settings, tmp_path / "log")
    try:
        server.until(lambda: "trying again" in server.log, "a line")
        assert server.end() == 0
    finally:
        server.process.kill()
    (line,) = (line for line in server.log.splitlines() if "trying again" in line)
    if form == "text":
        assert " WARNING MainProcess queue_operator.bootstrap: " in line
    else:
        told = json.loads(line)
        assert (told["level"], told["process"]) == ("warning", "server")
        assert told["logger"] == "queue_operator.bootstrap"


def test_what_is_no_address_is_said_to_be_none() -> None:
    done = call("pipeline", "run", "--lake", "/nowhere", "--dsn", "nonsense dsn")
    assert done.returncode == 1
    assert "dsn: is no address of a database" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://me:secret@word@127.0.0.1:1/none",
        "postgresql://me:secret/word@127.0.0.1:1/none",
        "host=127.0.0.1 port=1 password=a secret dbname=none",
    ],
)
def test_no_command_tells_a_part_of_a_password(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = [
        ["migrate", "--dsn", dsn],
        ["pipeline", "run", "--lake", "/nowhere", "--dsn", dsn],
    ]
    told = [CliRunner().invoke(main, command) for command in commands]
    monkeypatch.setenv("QUEUE_OPERATOR_DATABASE__DSN", dsn)
    told.append(CliRunner().invoke(main, ["migrate"]))
    if "://" in dsn:
        # Of pairs only libpq can tell, later.
        told.append(CliRunner().invoke(main, ["serve"]))
    for one in told:
        assert one.exit_code == 1, one.output
        assert "secret" not in one.output + repr(one.exception), one.output
        assert "USER:PASSWORD@HOST:PORT/NAME" in one.output, one.output
    with pytest.raises(DevClusterError, match="USER:PASSWORD@HOST:PORT/NAME") as refused:
        require_database(dsn)
    assert "secret" not in str(refused.value) + repr(refused.value.__cause__)


def test_a_setting_that_is_wrong_is_not_shown() -> None:
    with pytest.raises(ValidationError) as refused:
        Settings.model_validate({"database": {"dsn": "mysql://me:secret@there"}})
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("arguments", [[], ["--dsn="]])
def test_a_forgotten_address_is_no_address(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A default would change whatever database is at hand."""
    monkeypatch.delenv("QUEUE_OPERATOR_DATABASE__DSN", raising=False)
    told = CliRunner().invoke(migrate, arguments)
    assert told.exit_code == 1
    assert "give --dsn, or set QUEUE_OPERATOR_DATABASE__DSN" in told.stderr


UNKNOWN_ID = 1_000_680_000
"""As OpenShift gives to a pod; nobody has it."""


def call_as_nobody_known(*arguments: str) -> subprocess.CompletedProcess[str]:
    """As a user without account and home. The right to read alone lets it run a Python that lies in
    root's home.
    """
    reading = "--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"
    user = f"--reuid={UNKNOWN_ID}", "--regid=0", "--clear-groups"
    bare = "env", "-u", "HOME", "-u", "XDG_CACHE_HOME", "-u", "QUEUE_OPERATOR_CACHE_DIR"
    line = ["setpriv", *user, *reading, "--", *bare, str(PROGRAM), *arguments]
    return subprocess.run(line, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["pipeline", "jars"], "this user has no home: set XDG_CACHE_HOME"),
        (["dev", "status"], "this user has no home folder: set HOME"),
        (["dev", "up", "--provider", "control-plane"], "this user has no home folder: set HOME"),
        (["dev", "build-image"], "this user has no home folder: set HOME"),
    ],
)
def test_a_user_without_account_and_home_is_told_in_a_line(arguments: list[str], told: str) -> None:
    done = call_as_nobody_known(*arguments)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert told in line


def test_a_user_without_an_account_is_told_before_spark_begins(
    new_database: Callable[[], str],
) -> None:
    done = call_as_nobody_known("pipeline", "run", "--lake", "/nowhere", "--dsn", new_database())
    assert done.returncode == 1
    *_, line = done.stderr.splitlines()
    assert f"`spark:x:{UNKNOWN_ID}:0::/tmp:/bin/sh`" in line
    assert "Traceback" not in done.stderr
