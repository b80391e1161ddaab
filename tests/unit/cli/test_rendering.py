"""Numbers, times and texts as people read them."""

from datetime import UTC, datetime, timedelta

import pytest

from queue_operator.cli import rendering
from queue_operator.cli.logs import _head
from queue_operator.client.models import AttemptLog, ErrorInfo
from queue_operator.domain.outcome import ErrorCategory

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (timedelta(0), "0ms"),
        (timedelta(microseconds=1234), "1.23ms"),
        (timedelta(seconds=1.5), "1.5s"),
        (timedelta(seconds=59.99), "60s"),
        (timedelta(seconds=60), "1m"),
        (timedelta(seconds=61), "1m1s"),
        (timedelta(hours=2), "2h"),
        (timedelta(hours=2, minutes=3, seconds=4), "2h3m"),
        (timedelta(days=400, hours=1), "400d1h"),
    ],
)
def test_durations(value: timedelta | None, text: str) -> None:
    assert rendering.duration(value) == text


@pytest.mark.parametrize(
    ("category", "code", "text"),
    [
        (ErrorCategory.TIMEOUT, "TIMEOUT", "TIMEOUT: m"),
        (ErrorCategory.PERMANENT, "BROKEN", "PERMANENT BROKEN: m"),
    ],
)
def test_a_code_that_says_no_more_than_the_category_is_left_out(
    category: ErrorCategory, code: str, text: str
) -> None:
    assert rendering.fault(ErrorInfo(category=category, code=code, message="m")) == text


def test_logs_say_how_much_is_missing() -> None:
    assert _head(AttemptLog(attempt=1, lines=(), dropped=1003)) == (
        "attempt 1, 1,003 earlier lines left out"
    )
    assert _head(AttemptLog(attempt=2, lines=(), dropped=0)) == "attempt 2"


@pytest.mark.parametrize(
    ("ago", "age", "moment"),
    [
        (timedelta(0), "now", "(now)"),
        # Two clocks differ a little.
        (timedelta(milliseconds=-300), "now", "(now)"),
        (timedelta(seconds=90), "1m30s", "(1m30s ago)"),
        (timedelta(minutes=-5), "in 5m", "(in 5m)"),
    ],
)
def test_ages(ago: timedelta, age: str, moment: str) -> None:
    assert rendering.age(NOW - ago, NOW) == age
    assert rendering.moment(NOW - ago, NOW).endswith(f" UTC {moment}")
    assert (rendering.age(None), rendering.moment(None)) == ("-", "")


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0.0, "0"), (0.00123, "0.00123"), (12.345, "12.3"), (1234.5, "1,234"), (7, "7")],
)
def test_numbers(value: float | None, text: str) -> None:
    assert rendering.number(value) == text


def test_counts() -> None:
    assert rendering.count(1, "job") == "1 job"
    assert rendering.count(2000, "job") == "2,000 jobs"
    assert rendering.count(1, "job", at_least=True) == "1 or more jobs"


def test_texts_of_jobs_do_not_steer_the_terminal() -> None:
    assert rendering.plain("\x1b[31mred\x1b[0m\r") == "\\x1b[31mred\\x1b[0m\\r"
    assert rendering.plain("größe 日本\n\tnext") == "größe 日本\n\tnext"


def test_no_text_is_taken_for_markup(capsys: pytest.CaptureFixture[str]) -> None:
    made = rendering.table("JOB", "COUNT#")
    made.add_row("[bold]:smile:[/]", "1")
    rendering.print_rows(made, "none")
    assert capsys.readouterr().out == "JOB               COUNT\n[bold]:smile:[/]      1\n"


def test_long_lines_are_whole_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    made = rendering.table("JOB", "ERROR")
    made.add_row("x" * 255, "y" * 300)
    rendering.print_rows(made, "none")
    assert f"{'x' * 255}  {'y' * 300}\n" in capsys.readouterr().out


def test_an_empty_table_is_a_word_beside_the_output(capsys: pytest.CaptureFixture[str]) -> None:
    rendering.print_rows(rendering.table("JOB"), "no jobs")
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "no jobs\n")


def test_the_most_frequent_come_first(capsys: pytest.CaptureFixture[str]) -> None:
    counted = {f"E{n:02}": n for n in range(1, 13)}
    made = rendering.spread("CODE", counted, most=2)
    assert made is not None
    rendering.show(made)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows == [["CODE", "COUNT"], ["E12", "12"], ["E11", "11"], ["10", "others", "55"]]
    assert rendering.spread("CODE", {}) is None
