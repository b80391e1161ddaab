"""`make test` runs every test, once."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from halves import halves  # noqa: E402


def test_every_folder_of_tests_is_in_one_half() -> None:
    tests = ROOT / "tests"
    there = {f"tests/{path.relative_to(tests).parts[0]}" for path in tests.rglob("test_*.py")}
    listed = [folder for half in halves() for folder in half]
    assert sorted(listed) == sorted(there)
