"""`make test` runs every test, once."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from parts import parts  # noqa: E402


@pytest.mark.parametrize("full", [False, True])
def test_every_file_of_tests_is_in_one_part(*, full: bool) -> None:
    listed = [ROOT / place for part in parts(full=full) for place in part]
    for file in (ROOT / "tests").rglob("test_*.py"):
        holders = [place for place in listed if file == place or place in file.parents]
        assert len(holders) == 1, file
