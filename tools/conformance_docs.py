"""Generates the pages that say which test proves which clause of the specifications."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from queue_operator.testing.clauses import Clause, Page, Section, markers, pages

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = Path("docs/reference")
SUITE = ROOT / "operator" / "queue_operator" / "testing"
TESTS = ROOT / "tests"

_HEAD = """\
# {title}

Generated from the lists of clauses (`queue_operator/testing/clause_lists`) and the markers of the
tests. Each clause is a thing that a specification asks of {whom}, in our words; those named `must`
are its own words, and what is to be said of how they are kept follows *in italics*. Each test is
in the shipped suite (`queue_operator/testing`) or under `tests/`, and proves five clauses at most.
A clause without a test has an empty cell.
"""
_TAIL = """\
## Counts

Bullets are those of the specification under headings of the kinds counted here, as
`tools/specification.py` counted them. Some of them only introduce or repeat others, and are part
of what they introduce: clauses and merged ones add up to the bullets. Beyond them are expectations
that say something testable of their own.

| section | bullets | merged | clauses | beyond | with a test | flagged |
|---|---|---|---|---|---|---|
"""


@dataclass(frozen=True, slots=True)
class _Document:
    """A page of ours, and the specifications that it answers."""

    file: str
    title: str
    whom: str
    answers: tuple[str, ...]
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Of a specification that is answered in part: how the titles of those sections begin."""


_DOCUMENTS = (
    _Document(
        "backend-conformance.md",
        "Conformance",
        "a store",
        ("backend-api", "backend-sqlite", "queue-semantics"),
    ),
    _Document(
        "queue-conformance.md",
        "Conformance of the queue and the worker",
        "the queue or the worker",
        ("queue-api", "external-api"),
        {"external-api": ("5.", "6.")},
    ),
    _Document(
        "external-api-conformance.md",
        "Conformance of the external API",
        "the API and the worker",
        ("external-api",),
    ),
)


def documents() -> dict[Path, str]:
    """The pages."""
    proofs = markers(SUITE, TESTS)
    lists = {page.name: page for page in pages()}
    return {
        REFERENCE / one.file: _text(one, [_part(one, lists[name]) for name in one.answers], proofs)
        for one in _DOCUMENTS
    }


def _part(document: _Document, page: Page) -> Page:
    begins = document.parts.get(page.name, ("",))
    sections = tuple(one for one in page.sections if one.title.startswith(begins))
    names = {one.id for one in sections}
    clauses = tuple(one for one in page.clauses if one.section in names)
    return replace(page, sections=sections, clauses=clauses)


def _text(document: _Document, lists: Sequence[Page], proofs: dict[str, list[str]]) -> str:
    head = _HEAD.format(title=document.title, whom=document.whom)
    parts = [head, *(_clauses(page, proofs) for page in lists)]
    return "\n".join([*parts, _TAIL.rstrip(), *_counts(lists, proofs), ""])


def _clauses(page: Page, proofs: dict[str, list[str]]) -> str:
    lines = [f"## {page.name}.md", "", "| clause | flag | test |", "|---|---|---|"]
    for clause in page.clauses:
        tests = ", ".join(f"`{test}`" for test in proofs.get(clause.id, []))
        text = f"{clause.text} *{clause.note}*" if clause.note else clause.text
        lines.append(f"| `{clause.id}` {text} | {_flag(clause)} | {tests} |")
    left_out = [f"- {place}: {why}" for place, why in page.left_out.items()]
    return "\n".join(
        [*lines, *(["", "Not among the clauses:", "", *left_out] * bool(left_out)), ""]
    )


def _flag(clause: Clause) -> str:
    if not clause.flag:
        return ""
    decision = re.sub(r"ADR (\d{4})", _link, clause.decided)
    return f"**{clause.flag}**: {clause.kept} *{decision}*"


def _link(found: re.Match[str]) -> str:
    [record] = (ROOT / "docs" / "adr").glob(f"{found[1]}-*.md")
    return f"[ADR {found[1]}](../adr/{record.name})"


def _counts(lists: Sequence[Page], proofs: dict[str, list[str]]) -> Iterator[str]:
    for page in lists:
        rows = [_count(page, section, proofs) for section in page.sections]
        for section, row in zip(page.sections, rows, strict=True):
            yield _row(f"{page.name}: {section.title}", row)
        yield _row(f"**{page.name}**", tuple(map(sum, zip(*rows, strict=True))))


def _count(page: Page, section: Section, proofs: dict[str, list[str]]) -> tuple[int, ...]:
    clauses = [clause for clause in page.clauses if clause.section == section.id]
    counted = sum(clause.kind in section.bullets for clause in clauses)
    proven = sum(clause.id in proofs for clause in clauses)
    flagged = sum(bool(clause.flag) for clause in clauses)
    bullets = sum(section.bullets.values())
    return bullets, section.merged, counted, len(clauses) - counted, proven, flagged


def _row(name: str, numbers: tuple[int, ...]) -> str:
    return f"| {name} | {' | '.join(map(str, numbers))} |"
