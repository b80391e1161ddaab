"""The page of faults names tests that there are."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/reference/faults.md").read_text("utf-8")
SUITES = ROOT / "operator/queue_operator/testing"


def names_in(path: Path) -> set[str]:
    if not path.exists():
        return set()
    nodes = ast.walk(ast.parse(path.read_text("utf-8")))
    return {n.name for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_named_test_is_there() -> None:
    files = re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE)
    shipped = re.findall(r"`((?:backend|queue)/\w+)\.(test_\w+)`", PAGE)
    assert min(len(files), len(shipped)) > 50
    named = [(ROOT / "tests" / re.sub("^pg/", "integration/postgres/", f), t) for f, t in files]
    named += [(SUITES / f"{module}.py", test) for module, test in shipped]
    assert [f"{path}: {test}" for path, test in named if test not in names_in(path)] == []
