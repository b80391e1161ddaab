"""Messages by their shape: what differs from one failure to the next is left out. Pure."""

import re
from typing import Final

_MOST_CHARACTERS: Final = 300
_PARTS: Final = (
    ("<time>", r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?"),
    ("<id>", r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"),
    ("<address>", r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b"),
    (
        "<hex>",
        r"\b0x[0-9a-fA-F]+\b|\b(?=[0-9a-fA-F]*\d)(?=[0-9a-fA-F]*[a-fA-F])[0-9a-fA-F]{8,64}\b",
    ),
    ("'…'", r"(?<!\w)'[^']*'(?!\w)|\"[^\"]*\""),
    ("<n>", r"\d+(?:[.,]\d+)*"),
)
_PATTERN: Final = re.compile("|".join(f"({pattern})" for _, pattern in _PARTS))
_WORDS: Final = tuple(word for word, _ in _PARTS)


def shape(message: str) -> str:
    """The first line, at most 300 characters of it, with times, ids, addresses, numbers and what
    is quoted replaced by a word each.
    """
    first = message.strip().partition("\n")[0][:_MOST_CHARACTERS]
    return _PATTERN.sub(lambda found: _WORDS[(found.lastindex or 1) - 1], first).strip()
