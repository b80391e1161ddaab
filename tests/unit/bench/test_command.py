"""What `python -m bench` refuses before it starts anything."""

import pytest
from click.testing import CliRunner

from bench.__main__ import main


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--peer", "none", "--peer", "river"], "stands alone"),
        (["--stats-jobs", "7"], "multiple of 5000"),
        (["--search-jobs", "7"], "multiple of 5000"),
        (["--history-jobs", "7"], "multiple of 5000"),
        (["--scenario", "speed"], "is not one of"),
    ],
)
def test_refused(arguments: list[str], complaint: str) -> None:
    answer = CliRunner().invoke(main, arguments)
    assert answer.exit_code == 2
    assert complaint in answer.output
