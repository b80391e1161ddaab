"""Counts what a specification asks, by its headings and bullets:

    python tools/specification.py PATH/queue-api.md PATH/backend-api.md ...

The specifications are not part of the repository; what is counted here is committed instead, as
`queue_operator/testing/specifications.toml`, and the lists of clauses are held against it.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from queue_operator.testing.structure import FILE, digest, structures

_HEAD = """\
# What each specification asks, as counted by `tools/specification.py`, which alone writes this.
# Under each heading stand the groups of its bullets: the label above them, which is empty where
# there is none, or the shape whose fields they are; how many there are; a digest of their words.
"""
_HEADING = re.compile(r"#+ +(?:(?:Requirement|Scenario): )?(.*)")
_LABEL = re.compile(r"\*\*(.+?):?\*\*")
_BULLET = re.compile(r"\s*(?:[-*]|\d+\.) +(.*)")
# Bullets that say themselves what they are.
_OWN_LABEL = re.compile(r"\*\*(Source|Precondition|Action|Postcondition|WHEN|THEN|AND)\*\*:? *(.*)")
_SHAPE = re.compile(r"(\w+) \{")
# A field of a shape, or a formula.
_FIELD = re.compile(r"[a-z_0-9]+(?:\(|:| = )")
_HEAD_ROWS = 2


@dataclass(frozen=True, slots=True)
class Bullet:
    """One thing that is asked, and where."""

    heading: str
    label: str
    text: str


class _Reader:
    def __init__(self) -> None:
        self._heading = self._label = self._shape = ""
        self._fenced = False
        self._rows = 0

    def read(self, line: str) -> Iterator[Bullet]:
        if line.startswith("```"):
            self._fenced, self._shape = not self._fenced, ""
        elif self._fenced:
            yield from self._code(line)
        elif line.startswith("|"):
            self._rows += 1
            if self._rows > _HEAD_ROWS:
                yield Bullet(self._heading, self._label, line)
        elif found := _HEADING.match(line):
            self._heading, self._label, self._rows = found[1], "", 0
        elif found := _LABEL.match(line):
            self._label = found[1]
        elif found := _BULLET.match(line):
            yield self._bullet(found[1])
        elif " SHALL " in line:
            yield Bullet(self._heading, "", line)

    def _code(self, line: str) -> Iterator[Bullet]:
        if begun := _SHAPE.match(line):
            self._shape = begun[1]
        elif _FIELD.match(line.strip()):
            yield Bullet(self._heading, self._shape or self._label, line.strip())

    def _bullet(self, text: str) -> Bullet:
        if own := _OWN_LABEL.match(text):
            self._label, text = own[1], own[2]
        return Bullet(self._heading, self._label, text)


def bullets(page: str) -> list[Bullet]:
    """List items, rows of tables but for their heads, fields of shapes, and demands in prose."""
    reader = _Reader()
    return [bullet for line in page.splitlines() for bullet in reader.read(line)]


def counted(page: str) -> dict[str, dict[str, tuple[int, str]]]:
    """By heading and label."""
    texts: dict[str, dict[str, list[str]]] = {}
    for one in bullets(page):
        texts.setdefault(one.heading, {}).setdefault(one.label, []).append(one.text)
    return {
        heading: {label: (len(said), digest(said)) for label, said in groups.items()}
        for heading, groups in texts.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path, nargs="+", help="a specification, as Markdown")
    parser.add_argument("--check", action="store_true", help="write nothing, fail if it differs")
    options = parser.parse_args()
    pages = {path.stem: counted(path.read_text("utf-8")) for path in options.page}
    text = _text({**structures(), **pages})
    if options.check:
        return int(FILE.read_text("utf-8") != text)
    FILE.write_text(text, "utf-8")
    return 0


def _text(pages: dict[str, dict[str, dict[str, tuple[int, str]]]]) -> str:
    lines = [_HEAD]
    for name in sorted(pages):
        for heading, groups in pages[name].items():
            lines.append(f'["{name}"."{heading}"]')
            lines += [f'"{label}" = [{n}, "{words}"]' for label, (n, words) in groups.items()]
            lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
