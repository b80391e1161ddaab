"""`queue-operator pipeline run`, on the session that the tests share."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.pipeline.stage import Stage

from queue_operator.cli.main import main
from queue_operator.domain.states import JobState
from queue_operator.pipeline.session import class_archive, prefetch_jars

# PySpark leaves the socket open over which it fetched a result.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


def run(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(main, ["pipeline", *arguments])


def test_json_and_table_show_the_rollup(stage: Stage) -> None:
    numbers = stage.events.submit(4)
    stage.events.claim(numbers, [1_500, 1_500, 1_500, 2_500_000])
    arguments = ["run", "--dsn", stage.dsn, "--lake", str(stage.folder)]

    answer = json.loads(run(*arguments, "--output", "json").stdout)
    assert answer["report"]["bronze_rows"] == 8
    assert answer["report"]["hours"] == ["2026-03-01T10:00:00+00:00"]
    running = next(row for row in answer["rollup"] if row["state"] == JobState.RUNNING)
    assert (running["transitions"], running["queue_latency_max_us"]) == (4, 2_500_000)

    table = run(*arguments)
    assert table.exit_code == 0
    line = next(line for line in table.stdout.splitlines() if JobState.RUNNING in line)
    assert "1.5 ms" in line
    assert "2.50 s" in line
    assert "0 statements, 0 transitions" in table.stderr


AWKWARD = ["my lake", "100%", "%20", "a#b?c", "ein Süß", "lake[1]{a,b}*", "a:b", "a\\b"]


@pytest.mark.parametrize("name", AWKWARD)
def test_the_lake_is_the_folder_that_was_named(stage: Stage, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "lakes" / name
    folder.parent.mkdir()
    arguments = ["run", "--dsn", stage.dsn, "--lake", str(folder), "--output", "json"]
    stage.events.submit(2)
    first = run(*arguments)
    assert first.exit_code == 0, first.output
    stage.events.submit(1)
    second = json.loads(run(*arguments).stdout)
    assert [path.name for path in folder.parent.iterdir()] == [name]
    assert {path.name for path in folder.iterdir()} >= {"_lake_id", "bronze"}
    # It was read again: the hour counts what both runs brought.
    assert [row["transitions"] for row in second["rollup"]] == [3]


@pytest.mark.usefixtures("spark")
def test_an_unreachable_database_is_named(tmp_path: Path) -> None:
    dsn = "postgresql://someone:secret-word@127.0.0.1:1/none"
    result = run("run", "--dsn", dsn, "--lake", str(tmp_path))
    assert result.exit_code == 1
    assert "Postgres cannot be used" in result.stderr
    assert "secret-word" not in result.stderr


def test_what_a_start_needs_is_fetched_ahead() -> None:
    result = run("jars")
    assert result.exit_code == 0, result.stderr
    driver, archive = result.stdout.split()
    assert driver == str(prefetch_jars())
    assert archive == str(class_archive())
    assert class_archive().stat().st_size > 1_000_000
