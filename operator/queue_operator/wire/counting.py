"""How many fields a message has, told from its bytes and no further than need be: what is made of
bytes of two characters takes hundreds each, and the time of everybody else.
"""

from typing import Final

_WORTH_IT: Final = 64 * 1024
"""Fewer bytes hold no number of fields that would matter."""
_LENGTH_DELIMITED: Final = 2
_FIXED: Final = {1: 8, 5: 4}


def has_more_fields(data: bytes, most: int, *, within: bool = False) -> bool:
    """Whether the message has more than `most` fields or, with `within`, the messages that it holds
    have together. False for bytes that are no message: who reads them says so.
    """
    if len(data) <= _WORTH_IT:
        return False
    count, spans = 0, [(0, len(data), within)]
    try:
        while spans:
            at, end, deeper = spans.pop()
            while at < end:
                count += 1
                if count > most:
                    return True
                tag, at = _varint(data, at)
                start, at = _skip(data, at, tag & 7)
                if deeper and tag & 7 == _LENGTH_DELIMITED:
                    spans.append((start, min(at, end), False))
    except (IndexError, KeyError):
        return False
    return False


def _skip(data: bytes, at: int, kind: int) -> tuple[int, int]:
    """Where the value of a field begins and ends. Raises KeyError for a kind that is none."""
    if kind == 0:
        return at, _varint(data, at)[1]
    if kind == _LENGTH_DELIMITED:
        size, at = _varint(data, at)
        return at, at + size
    return at, at + _FIXED[kind]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
