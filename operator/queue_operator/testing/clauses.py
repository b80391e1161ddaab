"""What the specifications ask, clause by clause, and which test proves which.

The lists are data (`clause_lists/*.toml`), written before the tests; a test names the clauses
it proves with `proves`. A clause that no test names is an empty row of the reference pages
(`backend-conformance.md`, `queue-conformance.md`), which only a list that is `open` may have.
"""

import ast
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, TypeVar

MAX_CLAUSES: Final = 5
"""A test that proves more is too broad to say what broke."""

KINDS: Final = {
    "pre": "precondition",
    "post": "postcondition",
    "effect": "effect",
    "error": "error",
    "expect": "expectation",
    "must": "requirement",
    "move": "transition",
    "rule": "rule",
    "then": "scenario",
}
"""The third part of an id, and what it stands for."""

Test = TypeVar("Test", bound=Callable[..., object])


@dataclass(frozen=True, slots=True)
class Clause:
    """One thing that a specification asks, in our words, or, where its kind is "requirement", in
    its own. `id` is page.section.kind.number; `note` says how it is kept, where that is not plain.
    """

    id: str
    page: str
    section: str
    kind: str
    text: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """A heading of a specification. `bullets` counts its bullets there by kind, so that a
    reader can compare with the number of clauses; `merged` of them only introduce or repeat
    others and are part of those clauses.
    """

    page: str
    id: str
    title: str
    bullets: Mapping[str, int]
    merged: int


@dataclass(frozen=True, slots=True)
class Page:
    """One specification. While its list is `open`, clauses may still be without a test."""

    name: str
    sections: tuple[Section, ...]
    clauses: tuple[Clause, ...]
    open: bool = False


def proves(*clause_ids: str) -> Callable[[Test], Test]:
    """Marks a test with the one to five clauses that it proves."""
    if not 1 <= len(clause_ids) <= MAX_CLAUSES or len(set(clause_ids)) < len(clause_ids):
        raise ValueError(f"name 1 to {MAX_CLAUSES} different clauses, not {clause_ids}")

    def mark(test: Test) -> Test:
        test.__proves__ = clause_ids  # type: ignore[attr-defined]
        return test

    return mark


def markers(*folders: Path) -> dict[str, list[str]]:
    """Which tests name each clause, as `folder/module.test`, without importing any of them."""
    found: dict[str, list[str]] = {}
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            module = path.relative_to(folder).with_suffix("").as_posix()
            for test, clause_ids in _marked(ast.parse(path.read_text("utf-8"))):
                for clause_id in clause_ids:
                    found.setdefault(clause_id, []).append(f"{module}.{test}")
    return found


def _marked(module: ast.Module) -> Iterator[tuple[str, list[str]]]:
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == proves.__name__:
                    yield node.name, [ast.literal_eval(argument) for argument in mark.args]


def pages() -> list[Page]:
    """Every list, in the order of the names of the files."""
    lists = (f for f in files(__package__).joinpath("clause_lists").iterdir())
    named = sorted((f for f in lists if f.name.endswith(".toml")), key=lambda f: f.name)
    return [_page(tomllib.loads(file.read_text("utf-8"))) for file in named]


def clauses() -> list[Clause]:
    """All clauses of all pages; raises ValueError for a list that is not well formed."""
    return [clause for page in pages() for clause in page.clauses]


def _page(document: Mapping[str, Any]) -> Page:
    name = document["page"]
    sections = tuple(
        Section(name, one["id"], one["title"], one.get("bullets", {}), one.get("merged", 0))
        for one in document["section"]
    )
    listed = tuple(_clause(name, one) for one in document["clause"])
    known = {section.id for section in sections}
    strangers = [clause.id for clause in listed if clause.section not in known]
    if strangers or len({clause.id for clause in listed}) < len(listed):
        raise ValueError(f"{name}: ids given twice, or of no section: {strangers}")
    return Page(name, sections, listed, document.get("open", False))


def _clause(page: str, entry: Mapping[str, str]) -> Clause:
    named, section, kind, number = entry["id"].split(".")
    if named != page or kind not in KINDS or not number.isdigit():
        raise ValueError(f"{entry['id']}: expected {page}.SECTION.KIND.NUMBER")
    return Clause(entry["id"], page, section, KINDS[kind], entry["text"], entry.get("note", ""))
