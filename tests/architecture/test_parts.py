"""`make test` runs every test, once, and ends with the names of those that failed."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from parts import parts, tell  # noqa: E402


@pytest.mark.parametrize("full", [False, True])
def test_every_file_of_tests_is_in_one_part(*, full: bool) -> None:
    listed = [ROOT / place for part in parts(full=full) for place in part]
    for file in (ROOT / "tests").rglob("test_*.py"):
        holders = [place for place in listed if file == place or place in file.parents]
        assert len(holders) == 1, file


def test_names_of_what_failed_are_kept_for_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    failures: list[str] = []
    lines = [
        "test_one.py F\n",
        "FAILED test_one.py::a - x\n",
        "ERROR test_one.py::b\n",
        "FAILEDx\n",
    ]
    tell("2| ", lines, failures)
    assert capsys.readouterr().out == "".join(f"2| {line}" for line in lines)
    assert failures == ["FAILED test_one.py::a - x\n", "ERROR test_one.py::b\n"]
