"""The list of mutants, and the tests that must notice each."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from queue_operator.testing.clauses import clauses, markers

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGE: Final = Path("operator/queue_operator")
_LISTS: Final = (
    "mutants.toml",
    "drawn_mutants.toml",
    "queue_mutants.toml",
    "api_mutants.toml",
    "store_mutants.toml",
    "door_mutants.toml",
)
# Where the tests of a shipped suite are run, the suite of the API, and other folders whose tests
# judge a mutant where those have none, or where it names them.
_SUITES: Final = {"backend/": "tests/contract/", "queue/": "tests/contract_queue/"}
_API: Final = "contract_api/"
_OTHERS: Final = ("unit/", "integration/")  # the quicker ones first


@dataclass(frozen=True, slots=True)
class Mutant:
    """`find` in `file` (of the package) becomes `replace`; the tests of `clause` run on `store`,
    which is a store or a rig of the suites, or nothing where they need neither. `tests` names
    those of the clause that are to notice, where not each of them can; or, where no clause of a
    specification speaks, the tests that do, or files of them.
    """

    file: str
    find: str
    replace: str
    clause: str = ""
    tests: tuple[str, ...] = ()
    store: str = ""

    @property
    def promise(self) -> str:
        """What it breaks: the clause, and the tests that stand for it."""
        return " ".join([self.clause, *self.tests]).strip()

    @property
    def name(self) -> str:
        return f"{self.promise} {self.store} {self.file}"


def mutants() -> list[Mutant]:
    """All, in the order of the lists."""
    lists = (Path(__file__).with_name(name).read_text("utf-8") for name in _LISTS)
    return [_mutant(entry) for text in lists for entry in tomllib.loads(text)["mutant"]]


def _mutant(entry: dict[str, Any]) -> Mutant:
    return Mutant(**{**entry, "tests": tuple(entry.get("tests", ()))})


def tests_of(wanted: list[Mutant]) -> dict[str, list[str]]:
    """The tests of each promise, as pytest names them: of the suites, or else of the others."""
    found = _proofs()
    return {one.promise: list(one.tests) or _named(found.get(one.clause, [])) for one in wanted}


def _proofs() -> dict[str, list[str]]:
    return markers(ROOT / PACKAGE / "testing", ROOT / "tests")


def _named(proofs: list[str]) -> list[str]:
    places = (_in_suites(proofs), *(_placed(proofs, folder) for folder in _OTHERS))
    return next((tests for tests in places if tests), [])


def _all(proofs: list[str]) -> list[str]:
    return _in_suites(proofs) + _placed(proofs, *_OTHERS)


def _in_suites(proofs: list[str]) -> list[str]:
    shipped = [
        f"{folder}test_{module}.py::{test}"
        for suite, folder in _SUITES.items()
        for proof in proofs
        if proof.startswith(suite)
        for module, _, test in [proof.removeprefix(suite).partition(".")]
    ]
    return shipped + _placed(proofs, _API)


def _placed(proofs: list[str], *folders: str) -> list[str]:
    parts = (proof.partition(".") for proof in proofs if proof.startswith(folders))
    return [f"tests/{module}.py::{test}" for module, _, test in parts]


def faults(listed: list[Mutant]) -> list[str]:
    """What is wrong with the list itself: it must name what there is, and change something."""
    known, found, wrong = {clause.id for clause in clauses()}, tests_of(listed), []
    proofs = _proofs()
    for one in listed:
        path = ROOT / PACKAGE / one.file
        count = path.read_text("utf-8").count(one.find) if path.is_file() else 0
        if count != 1:
            wrong.append(f"{one.name}: {one.find!r} is there {count} times, not once")
        if not (one.tests or one.clause):
            wrong.append(f"{one.name}: give a clause, or the tests that stand for one")
        if one.clause and (others := set(one.tests) - set(_all(proofs.get(one.clause, [])))):
            wrong.append(f"{one.name}: does not prove it: {', '.join(sorted(others))}")
        if missing := [t for t in one.tests if not (ROOT / t.partition("::")[0]).is_file()]:
            wrong.append(f"{one.name}: there is no {', '.join(missing)}")
        if one.clause and (one.clause not in known or not found[one.promise]):
            wrong.append(f"{one.name}: no such clause, or no test of the suite proves it")
        if one.find == one.replace:
            wrong.append(f"{one.name}: changes nothing")
    return wrong
