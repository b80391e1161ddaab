"""Every clause of the specifications has a test, and every shipped test is run."""

import ast
import importlib
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_operator.testing.clauses import (
    MAX_CLAUSES,
    Page,
    Section,
    clauses,
    markers,
    pages,
    places,
    proves,
)
from queue_operator.testing.structure import digest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import specification  # noqa: E402

SUITE = ROOT / "operator" / "queue_operator" / "testing" / "backend"
CONTRACT = ROOT / "tests" / "contract"
PROOFS = markers(SUITE.parent, ROOT / "tests")
QUEUE_SUITE = SUITE.parent / "queue"
# For stores with more than the contract, which import them beside the rest.
CAPABILITIES = {
    "cancel_inbox",
    "checkpoints",
    "events",
    "following",
    "logs",
    "owners_plane",
    "pauses",
    "places",
    "progress",
    "quotas",
    "webhooks",
    "sessions",
    "spawning",
    "statistics",
    "suspensions",
    "watching",
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


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_every_bullet_of_the_specification_is_answered_once(page: Page) -> None:
    groups = [group for section in page.sections for group in section.groups]
    answered = [f"{one.heading} > {one.label}" if one.label else one.heading for one in groups]
    assert sorted([*answered, *page.left_out]) == sorted(places(page))


# Bullets that introduce others, and have no row: before which row of the section.
INTRODUCTIONS = {
    "GetJobStats": (4, "Statistics include:"),
    "ImplementationGuidelines": (3, "Maintain indexes on:"),
}


def own_words(page: Page, section: Section) -> Iterator[tuple[str, str, str]]:
    """Rows in the specification's own words: label, digest of the bullets, digest of the rows."""
    rows = [c.text for c in page.clauses if c.section == section.id and c.kind == "requirement"]
    if section.id in INTRODUCTIONS:
        rows.insert(*INTRODUCTIONS[section.id])
    for group in section.groups:
        if group.kind == "requirement":
            said, rows = rows[: group.count], rows[group.count :]
            yield group.label, group.words, digest(said)


def test_rows_in_the_words_of_a_specification_have_its_words() -> None:
    compared = [
        (section.id, label, asked, said)
        for page in pages()
        for section in page.sections
        for label, asked, said in own_words(page, section)
    ]
    assert len(compared) == 25
    assert [one[:2] for one in compared if one[2] != one[3]] == []


def test_each_flag_says_who_decided() -> None:
    flagged = [clause for clause in clauses() if clause.flag]
    records = {path.name[:4] for path in (ROOT / "docs" / "adr").glob("0*.md")}
    for clause in flagged:
        kind, _, rest = clause.decided.partition(": ")
        named = re.fullmatch(r"ADR (\d{4})", clause.decided)
        assert clause.kept.endswith("."), clause.id
        if named:
            assert named[1] in records, clause.id
        else:
            assert kind == "The design" or kind.startswith("The specification"), clause.id
            assert rest.endswith("."), clause.id


def test_a_tool_counts_what_a_specification_asks(tmp_path: Path) -> None:
    page = tmp_path / "some-api.md"
    page.write_text(SPECIFICATION)
    counted = specification.counted(page.read_text())
    numbers = {
        heading: {label: count for label, (count, _) in groups.items()}
        for heading, groups in counted.items()
    }
    assert numbers == {
        "Enqueue": {"Preconditions": 1, "Postconditions": 3},
        "Numbers": {"": 2, "Precondition": 1, "Action": 2},
        "Shapes": {"Job": 2, "Stats": 1},
        "Codes": {"": 1},
        "Storage": {"": 1},
        "Save": {"WHEN": 1, "THEN": 1},
        "Delays": {"Calculation": 2},
    }
    changed = specification.counted(SPECIFICATION.replace("is stored", "is kept"))
    assert changed["Enqueue"]["Postconditions"] != counted["Enqueue"]["Postconditions"]
    assert changed["Enqueue"]["Preconditions"] == counted["Enqueue"]["Preconditions"]


SPECIFICATION = """\
# Page
Prose is not counted.
#### Enqueue
**Signature**: `Enqueue(job)`
**Preconditions**:
- `job` is valid
**Postconditions**:
- If successful:
  - Job is stored
- Returns it
## Numbers
1. **Safety**: one
2. Two
- **Precondition**: it is ready
- **Action**:
  - It goes
## Shapes
```
Job {
    // Not a field
    id:       string // said
    tags():   map
}
Stats {
    p50:   number
}
```
## Codes
| Code | Meaning |
|---|---|
| A | b |
### Requirement: Storage
The system SHALL store.
#### Scenario: Save
- **WHEN** asked
- **THEN** it does
### Delays
**Calculation**: so
```
delay = base * 2
```
- once
"""


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
