"""How much each specification asks, as it was counted from the specification itself.

`specifications.toml` is written by `tools/specification.py` and by nobody else: what the lists of
clauses say of a specification is held against it.
"""

import tomllib
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Final

FILE: Final = Path(__file__).with_name("specifications.toml")

Groups = dict[str, tuple[int, str]]
"""Of one heading, by label: how many bullets, and a digest of their words."""


def structures() -> dict[str, dict[str, Groups]]:
    """By specification and heading."""
    if not FILE.is_file():
        return {}
    document = tomllib.loads(FILE.read_text("utf-8"))
    return {
        page: {
            heading: {label: (count, words) for label, (count, words) in groups.items()}
            for heading, groups in headings.items()
        }
        for page, headings in document.items()
    }


def digest(texts: Iterable[str]) -> str:
    """Tells whether these are the words that were counted."""
    return sha256("\n".join(texts).encode()).hexdigest()[:12]
