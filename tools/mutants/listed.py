"""The list of mutants, and the tests that must notice each."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from queue_operator.testing.clauses import clauses, markers

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGE: Final = Path("operator/queue_operator")
_LIST: Final = Path(__file__).with_name("mutants.toml")
_SUITE: Final = "backend/"


@dataclass(frozen=True, slots=True)
class Mutant:
    """`find` in `file` (of the package) becomes `replace`; the tests of `clause` run on `store`."""

    clause: str
    file: str
    find: str
    replace: str
    store: str

    @property
    def name(self) -> str:
        return f"{self.clause} {self.store} {self.file}"


def mutants() -> list[Mutant]:
    """All, in the order of the list."""
    entries = tomllib.loads(_LIST.read_text("utf-8"))["mutant"]
    return [Mutant(**entry) for entry in entries]


def tests_of(wanted: list[Mutant]) -> dict[str, list[str]]:
    """The tests of each clause, as pytest names them. Only those that run on every store."""
    found = markers(ROOT / PACKAGE / "testing")
    return {
        one.clause: [_named(t) for t in found[one.clause] if t.startswith(_SUITE)]
        for one in wanted
        if one.clause in found
    }


def _named(marker: str) -> str:
    module, _, test = marker.removeprefix(_SUITE).partition(".")
    return f"tests/contract/test_{module}.py::{test}"


def faults(listed: list[Mutant]) -> list[str]:
    """What is wrong with the list itself: it must name what there is, and change something."""
    known, found, wrong = {clause.id for clause in clauses()}, tests_of(listed), []
    for one in listed:
        path = ROOT / PACKAGE / one.file
        count = path.read_text("utf-8").count(one.find) if path.is_file() else 0
        if count != 1:
            wrong.append(f"{one.name}: {one.find!r} is there {count} times, not once")
        if one.clause not in known or not found.get(one.clause):
            wrong.append(f"{one.name}: no such clause, or no test of the suite proves it")
        if one.find == one.replace:
            wrong.append(f"{one.name}: changes nothing")
    return wrong
