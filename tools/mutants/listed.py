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
)
# Where the tests of a shipped suite are run, the suite of the API, and other folders whose tests
# may judge a mutant where those have none.
_SUITES: Final = {"backend/": "tests/contract/", "queue/": "tests/contract_queue/"}
_API: Final = "contract_api/"
_OTHERS: Final = ("unit/worker/", "unit/wire/")


@dataclass(frozen=True, slots=True)
class Mutant:
    """`find` in `file` (of the package) becomes `replace`; the tests of `clause` run on `store`,
    which is a store or a rig of the suites, or nothing where they need neither. Where no clause
    of a specification speaks, `tests` names the tests, or files of them, instead.
    """

    file: str
    find: str
    replace: str
    clause: str = ""
    tests: tuple[str, ...] = ()
    store: str = ""

    @property
    def promise(self) -> str:
        """What it breaks: the clause, or the tests that stand for one."""
        return self.clause or " ".join(self.tests)

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
    found = markers(ROOT / PACKAGE / "testing", ROOT / "tests")
    return {one.promise: list(one.tests) or _named(found.get(one.clause, [])) for one in wanted}


def _named(proofs: list[str]) -> list[str]:
    shipped = [
        f"{folder}test_{module}.py::{test}"
        for suite, folder in _SUITES.items()
        for proof in proofs
        if proof.startswith(suite)
        for module, _, test in [proof.removeprefix(suite).partition(".")]
    ]
    suites = shipped + _placed(proofs, _API)
    return suites or _placed(proofs, *_OTHERS)


def _placed(proofs: list[str], *folders: str) -> list[str]:
    parts = (proof.partition(".") for proof in proofs if proof.startswith(folders))
    return [f"tests/{module}.py::{test}" for module, _, test in parts]


def faults(listed: list[Mutant]) -> list[str]:
    """What is wrong with the list itself: it must name what there is, and change something."""
    known, found, wrong = {clause.id for clause in clauses()}, tests_of(listed), []
    for one in listed:
        path = ROOT / PACKAGE / one.file
        count = path.read_text("utf-8").count(one.find) if path.is_file() else 0
        if count != 1:
            wrong.append(f"{one.name}: {one.find!r} is there {count} times, not once")
        if bool(one.tests) == bool(one.clause):
            wrong.append(f"{one.name}: give a clause, or the tests that stand for one")
        if missing := [t for t in one.tests if not (ROOT / t.partition("::")[0]).is_file()]:
            wrong.append(f"{one.name}: there is no {', '.join(missing)}")
        if one.clause and (one.clause not in known or not found.get(one.clause)):
            wrong.append(f"{one.name}: no such clause, or no test of the suite proves it")
        if one.find == one.replace:
            wrong.append(f"{one.name}: changes nothing")
    return wrong
