"""Tables on terminals of any width."""

import io

import pytest
from rich.console import Console

from queue_operator.cli import rendering
from queue_operator.cli.find import failure_table, job_table
from queue_operator.client import FailureDetails, JobStatus
from queue_operator.client.models import FailureInfo
from queue_operator.domain.ordering import Priority
from queue_operator.domain.outcome import ErrorCategory
from queue_operator.domain.views import Phase

ID = "01a2202b-60ba-7527-8384-af65995ae3ce"
JOB = JobStatus(
    job_id=ID,
    namespace="n",
    type="send-email-to-customers",
    state=Phase.RUNNING,
    attempt=1,
    cancel_requested=True,
    priority=Priority.NORMAL,
    tags={"customer": "7", "region": "eu"},
)
FAILURE = FailureDetails(
    job_id=ID,
    type="send-email-to-customers",
    final_state=Phase.DEAD_LETTER,
    total_attempts=5,
    failure=FailureInfo(
        attempt=5,
        category=ErrorCategory.TEMPORARY,
        code="SMTP_TIMEOUT",
        message="the mail server did not answer in time",
    ),
)


def drawn(table: object, width: int) -> list[list[str]]:
    """The words of each line."""
    console = Console(width=width, file=io.StringIO(), markup=False, highlight=False)
    with console.capture() as captured:
        console.print(table)
    lines = captured.get().splitlines()
    assert all(len(line) <= width for line in lines)
    return [line.split() for line in lines]


@pytest.mark.parametrize("width", [60, 80, 100, 120, 1000])
def test_each_job_is_a_line_that_begins_with_its_id(width: int) -> None:
    for table in (job_table([JOB, JOB]), failure_table([FAILURE, FAILURE])):
        header, *rows = drawn(table, width)
        assert [row[0] for row in rows] == [ID, ID]
        assert {"JOB", "STATE"} <= set(header)


def test_what_matters_least_is_left_out_first() -> None:
    wide, *_ = drawn(job_table([JOB]), 1000)
    assert wide == ["JOB", "TYPE", "STATE", "ATTEMPT", "PRIORITY", "AGE", "CHANGED", "TAGS"]
    narrow, _ = drawn(job_table([JOB]), 80)
    assert narrow == ["JOB", "TYPE", "STATE", "ATTEMPT", "AGE"]
    narrow, row = drawn(failure_table([FAILURE]), 80)
    assert narrow == ["JOB", "STATE", "CODE", "ERROR"]
    assert row[:3] == [ID, "DEAD_LETTER", "SMTP_TIMEOUT"]
    assert row[-1].endswith("…")


def test_a_row_may_have_fewer_cells() -> None:
    table = rendering.table("TYPE", "COUNT#", elastic=("TYPE",))
    table.add_row("a", "1")
    table.add_row("3 others")
    assert drawn(table, 80) == [["TYPE", "COUNT"], ["a", "1"], ["3", "others"]]
