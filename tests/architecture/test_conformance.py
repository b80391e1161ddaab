"""Every clause of the specifications has a test, and every shipped test is run."""

import ast
import importlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_operator.testing.clauses import MAX_CLAUSES, Page, clauses, markers, pages, proves

ROOT = Path(__file__).resolve().parents[2]
SUITE = ROOT / "operator" / "queue_operator" / "testing" / "backend"
CONTRACT = ROOT / "tests" / "contract"
PROOFS = markers(SUITE.parent, ROOT / "tests")
QUEUE_SUITE = SUITE.parent / "queue"
# For stores with more than the contract, which import them beside the rest.
CAPABILITIES = {
    "cancel_inbox",
    "checkpoints",
    "events",
    "logs",
    "owners_plane",
    "pauses",
    "places",
    "progress",
    "quotas",
    "sessions",
    "spawning",
    "statistics",
}
# What a queue of another process has not.
IN_PROCESS = {"pausing", "sessions"}
KNOWN = {clause.id for clause in clauses()}
OPEN = {clause.id for page in pages() if page.open for clause in page.clauses}


def names_of(path: Path) -> Iterator[str]:
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith(
            "test_"
        ):
            yield node.name


def modules(suite: Path = SUITE) -> list[Path]:
    return [path for path in sorted(suite.glob("*.py")) if list(names_of(path))]


def star_imports(folder: Path) -> set[str | None]:
    """Modules whose tests a test module of `folder` takes over, all of them."""
    return {
        node.module
        for path in folder.glob("test_*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ImportFrom) and [name.name for name in node.names] == ["*"]
    }


def test_no_clause_is_without_a_test() -> None:
    assert sorted(KNOWN - OPEN - set(PROOFS)) == []


def test_a_list_is_open_only_while_a_clause_is_without_a_test() -> None:
    finished = {p.name for p in pages() if p.open and {c.id for c in p.clauses} <= set(PROOFS)}
    assert finished == set()


def test_no_test_names_a_clause_that_is_in_no_list() -> None:
    assert sorted(set(PROOFS) - KNOWN) == []


def test_no_test_proves_too_much() -> None:
    counts = Counter(test for tests in PROOFS.values() for test in tests)
    assert {test: n for test, n in counts.items() if n > MAX_CLAUSES} == {}


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_clauses_add_up_to_the_bullets_of_the_specification(page: Page) -> None:
    for section in page.sections:
        counted = sum(
            clause.section == section.id and clause.kind in section.bullets
            for clause in page.clauses
        )
        assert counted + section.merged == sum(section.bullets.values()), section.id


@pytest.mark.parametrize("suite", [SUITE, QUEUE_SUITE], ids=lambda suite: suite.name)
def test_a_name_stands_for_one_test(suite: Path) -> None:
    names = Counter(name for path in modules(suite) for name in names_of(path))
    # They are imported together, and the last one of a name would be the only one.
    assert [name for name, count in names.items() if count > 1] == []


def test_every_shipped_module_is_run_on_our_stores() -> None:
    shipped = {f"queue_operator.testing.backend.{path.stem}" for path in modules()}
    assert shipped - star_imports(CONTRACT) == set()


def test_every_shipped_module_is_run_on_our_queues() -> None:
    shipped = {f"queue_operator.testing.queue.{path.stem}" for path in modules(QUEUE_SUITE)}
    assert shipped - star_imports(ROOT / "tests" / "contract_queue") == set()


@proves("queue-api.WorkerPlane.rule.4")
def test_the_suite_of_the_queue_runs_over_grpc_as_in_process() -> None:
    folder = ROOT / "tests" / "contract_queue"
    rigs = importlib.import_module("tests.contract_queue.conftest").RIGS
    assert {"memory", "sqlite", "postgres", "postgres-replicas", "grpc", "grpc-replicas"} <= set(
        rigs
    )
    chosen = [path.stem for path in folder.glob("test_*.py") if "make_rig" in path.read_text()]
    # Workers' streams and pauses alone need a queue of the same process.
    assert sorted(chosen) == [f"test_{name}" for name in sorted(IN_PROCESS)]


def test_every_shipped_test_of_tasks_is_run() -> None:
    assert "queue_operator.testing.tasks" in star_imports(ROOT / "tests" / "unit" / "tasks")
    package = importlib.import_module("queue_operator.testing.tasks")
    names = {name for path in modules(SUITE.parent / "tasks") for name in names_of(path)}
    assert names
    assert sorted(name for name in names if not hasattr(package, name)) == []


def test_the_whole_suite_is_one_import() -> None:
    package = importlib.import_module("queue_operator.testing.backend")
    wanted = [path for path in modules() if path.stem not in CAPABILITIES]
    names = {name for path in wanted for name in names_of(path)}
    assert {name for name in package.__all__ if name != "backend"} == names


def test_the_whole_suite_of_the_queue_is_one_import() -> None:
    package = importlib.import_module("queue_operator.testing.queue")
    wanted = [path for path in modules(QUEUE_SUITE) if path.stem not in IN_PROCESS]
    names = {name for path in wanted for name in names_of(path)}
    assert {name for name in package.__all__ if name != "desk"} == names
