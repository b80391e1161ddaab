"""Rules of the source tree that no other tool keeps."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_operator.domain.states import JobState
from queue_operator.testing.clauses import proves

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "operator" / "queue_operator"
GENERATED = PACKAGE / "wire" / "v1"
STATE_TABLE = PACKAGE / "domain" / "states.py"
# Views of a job have words of their own that happen to be the same.
OWN_WORDS = {PACKAGE / "domain" / "views.py"}


def sources(*folders: Path) -> Iterator[Path]:
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            if GENERATED not in path.parents:
                yield path


def strings(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def test_the_source_root_is_no_package() -> None:
    assert not (ROOT / "operator" / "__init__.py").exists()


def test_state_names_are_written_in_the_state_table_only() -> None:
    states = {state.value for state in JobState}
    found = [
        f"{path.relative_to(ROOT)}:{line} {text}"
        for path in sources(PACKAGE)
        if path != STATE_TABLE and path not in OWN_WORDS
        for line, text in strings(path)
        if text in states
    ]
    assert found == []


def test_sql_statements_do_not_spell_state_names() -> None:
    found = [
        f"{path.relative_to(ROOT)} {state}"
        for path in sorted((PACKAGE / "backends").rglob("queries/*.sql"))
        for state in JobState
        if f"'{state.value}'" in path.read_text()
    ]
    assert found == []


@pytest.mark.parametrize("folder", ["operator", "tools", "tests", "examples", "bench"])
def test_files_stay_small(folder: str) -> None:
    long = [
        f"{path.relative_to(ROOT)} ({count} lines)"
        for path in sources(ROOT / folder)
        if (count := len(path.read_text().splitlines())) > 600
    ]
    assert long == []


@pytest.mark.parametrize("folder", ["operator", "tools", "tests", "examples", "bench"])
def test_functions_stay_small(folder: str) -> None:
    long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in sources(ROOT / folder)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= 70
    ]
    assert long == []


def banned(node: ast.AST) -> str | None:
    """The name of what a test must not use, if this node uses it."""
    if not isinstance(node, ast.Call | ast.Attribute):
        return None
    called = node.func if isinstance(node, ast.Call) else node
    if not isinstance(called, ast.Attribute):
        return None
    owner = (
        called.value.attr if isinstance(called.value, ast.Attribute) else ast.unparse(called.value)
    )
    if owner in {"pytest", "mark"} and called.attr in {"skip", "skipif", "xfail", "importorskip"}:
        return called.attr
    sleeps = (
        isinstance(node, ast.Call)
        and called.attr == "sleep"
        and isinstance(called.value, ast.Name)
        and called.value.id in {"time", "asyncio", "anyio"}
        # Giving way to other tasks is no waiting.
        and not (isinstance(node.args[0], ast.Constant) and node.args[0].value == 0)
    )
    return "sleep" if sleeps else None


def test_tests_never_sleep_or_skip() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno} {name}"
        for path in sources(ROOT / "tests")
        for node in ast.walk(ast.parse(path.read_text()))
        if (name := banned(node)) and isinstance(node, ast.expr)
    ]
    assert found == []


@proves("backend-api.UpdateJobStatus.must.8")
def test_nothing_changes_a_status_where_a_call_of_its_own_does() -> None:
    """UpdateJobStatus is for administrators of a store; the product itself never uses it."""
    tests = PACKAGE / "testing"
    calling = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sources(PACKAGE)
        if tests not in path.parents
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "update_job_status"
    ]
    assert calling == []
