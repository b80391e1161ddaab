"""What the specifications ask, clause by clause, and which test proves which.

The lists are data (`clause_lists/*.toml`), written before the tests; a test names the clauses
it proves with `proves`. A clause that no test names is an empty row of the reference pages
(`backend-conformance.md`, `queue-conformance.md`), which only a list that is `open` may have.

How many bullets a specification has is not said in the lists: it was counted apart (`structure`).
"""

import ast
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, TypeVar

from queue_operator.testing.structure import Groups, structures

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

FLAGS: Final = ("narrower", "other", "missing")
"""How a clause may be kept other than it asks: in part, in another way, not at all."""

Test = TypeVar("Test", bound=Callable[..., object])


@dataclass(frozen=True, slots=True)
class Clause:
    """One thing that a specification asks, in our words, or, where its kind is "requirement", in
    its own. `id` is page.section.kind.number; `note` says how it is kept, where that is not plain.

    Where it is not kept as it asks it has a `flag`: `kept` says what is done instead, and
    `decided` who decided so, a sentence of the design or a decision record.
    """

    id: str
    page: str
    section: str
    kind: str
    text: str
    note: str = ""
    flag: str = ""
    kept: str = ""
    decided: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """Bullets of a specification, by heading and label. `words` is a digest of them."""

    heading: str
    label: str
    kind: str
    count: int
    words: str


@dataclass(frozen=True, slots=True)
class Section:
    """What answers some groups of bullets. `merged` of these only introduce or repeat others and
    are part of the clauses of those.
    """

    page: str
    id: str
    title: str
    groups: tuple[Group, ...]
    merged: int

    @property
    def bullets(self) -> Mapping[str, int]:
        """How many bullets the specification has there, by kind."""
        counts: dict[str, int] = {}
        for group in self.groups:
            counts[group.kind] = counts.get(group.kind, 0) + group.count
        return counts


@dataclass(frozen=True, slots=True)
class Page:
    """One specification. While its list is `open`, clauses may still be without a test."""

    name: str
    sections: tuple[Section, ...]
    clauses: tuple[Clause, ...]
    left_out: Mapping[str, str]
    """Groups of bullets that no section answers, and why, as `Heading` or `Heading > Label`."""
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
    asked, kinds = structures().get(name, {}), document.get("kinds", {})
    sections = tuple(_section(name, one, asked, kinds) for one in document["section"])
    listed = tuple(_clause(name, one) for one in document["clause"])
    known = {section.id for section in sections}
    strangers = [clause.id for clause in listed if clause.section not in known]
    if strangers or len({clause.id for clause in listed}) < len(listed):
        raise ValueError(f"{name}: ids given twice, or of no section: {strangers}")
    return Page(
        name, sections, listed, document.get("left_out", {}), open=document.get("open", False)
    )


def _section(
    page: str, entry: Mapping[str, Any], asked: Mapping[str, Groups], kinds: Mapping[str, str]
) -> Section:
    """Its groups are those under its title, unless it says which (`asks`). Their labels say of
    which kind they are (`kinds`), or else the section does.
    """
    kind = entry.get("kind", KINDS["rule"])
    groups = tuple(
        Group(heading, label, kinds.get(label, kind), *asked[heading][label])
        for place in entry.get("asks", [entry["title"]])
        for heading, label in _places(place, asked)
    )
    return Section(page, entry["id"], entry["title"], groups, entry.get("merged", 0))


def _places(place: str, asked: Mapping[str, Groups]) -> list[tuple[str, str]]:
    heading, _, label = place.partition(" > ")
    labels = asked.get(heading, {})
    return [(heading, one) for one in labels if one == label or not label]


def places(page: Page) -> Iterator[str]:
    """Every group of bullets that the specification has, answered or not."""
    for heading, groups in structures().get(page.name, {}).items():
        yield from (f"{heading} > {label}" if label else heading for label in groups)


def _clause(page: str, entry: Mapping[str, str]) -> Clause:
    named, section, kind, number = entry["id"].split(".")
    if named != page or kind not in KINDS or not number.isdigit():
        raise ValueError(f"{entry['id']}: expected {page}.SECTION.KIND.NUMBER")
    said = {name: entry[name] for name in ("note", "flag", "kept", "decided") if name in entry}
    if len(said.keys() & {"flag", "kept", "decided"}) not in (0, 3):
        raise ValueError(f"{entry['id']}: flag, kept and decided stand together")
    if said.get("flag", FLAGS[0]) not in FLAGS:
        raise ValueError(f"{entry['id']}: flag is one of {', '.join(FLAGS)}")
    return Clause(entry["id"], page, section, KINDS[kind], entry["text"], **said)
