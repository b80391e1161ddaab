"""Arrays for batches: parameters whose binary form is made in one go.

psycopg looks at each element of a list and dumps it by itself, which costs more than all else
that a batch needs of the client.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from psycopg.abc import Buffer
from psycopg.adapt import Dumper
from psycopg.pq import Format

_INT8_OID: Final = 20
_TEXT_OID: Final = 25
_UUID_OID: Final = 2950
_TIMESTAMPTZ_OID: Final = 1184
EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)
NULL: Final = b"\xff\xff\xff\xff"
_UUID_LENGTH: Final = b"\x00\x00\x00\x10"
_INT8_LENGTH: Final = 8
_length: Final = struct.Struct(">i").pack


class Int8s(tuple[int, ...]):
    """An array of bigint, without NULL."""


class Uuids(tuple[bytes, ...]):
    """An array of uuid, each as its 16 bytes, without NULL."""


class Times(tuple[datetime, ...]):
    """An array of timestamptz, aware, without NULL."""


class Microseconds(tuple[int, ...]):
    """An array of timestamptz, each as so many microseconds since `EPOCH`, without NULL."""


class Texts(tuple[str | None, ...]):
    """An array of text."""


def floats(values: Iterable[float | None]) -> list[float | None]:
    """Numbers for an array of float8: the driver takes no list of whole and broken ones."""
    return [None if value is None else float(value) for value in values]


def _array(oid: int, count: int, has_null: bool, body: bytes) -> bytes:
    if not count:
        return struct.pack(">iiI", 0, 0, oid)
    return struct.pack(">iiIii", 1, has_null, oid, count, 1) + body


def _of_8_bytes(oid: int, values: Sequence[int]) -> bytes:
    count = len(values)
    flat = [_INT8_LENGTH] * (2 * count)
    flat[1::2] = values
    return _array(oid, count, False, struct.pack(">" + "iq" * count, *flat))


class _BinaryDumper(Dumper):
    format = Format.BINARY


class _Int8sDumper(_BinaryDumper):
    oid = 1016

    def dump(self, obj: Int8s) -> Buffer:
        return _of_8_bytes(_INT8_OID, obj)


class _TimesDumper(_BinaryDumper):
    oid = 1185

    def dump(self, obj: Times) -> Buffer:
        return _of_8_bytes(_TIMESTAMPTZ_OID, [(at - EPOCH) // MICROSECOND for at in obj])


class _MicrosecondsDumper(_BinaryDumper):
    oid = 1185

    def dump(self, obj: Microseconds) -> Buffer:
        return _of_8_bytes(_TIMESTAMPTZ_OID, obj)


class _UuidsDumper(_BinaryDumper):
    oid = 2951

    def dump(self, obj: Uuids) -> Buffer:
        body = _UUID_LENGTH + _UUID_LENGTH.join(obj) if obj else b""
        return _array(_UUID_OID, len(obj), False, body)


class _TextsDumper(_BinaryDumper):
    oid = 1009

    def dump(self, obj: Texts) -> Buffer:
        encoded = [None if text is None else text.encode() for text in obj]
        return _array(_TEXT_OID, len(obj), None in obj, _join(encoded))


def _join(items: Sequence[bytes | None]) -> bytes:
    parts: list[bytes] = []
    for item in items:
        if item is None:
            parts.append(NULL)
        else:
            parts.append(_length(len(item)))
            parts.append(item)
    return b"".join(parts)


DUMPERS: Final[
    Mapping[
        type,
        type[_Int8sDumper]
        | type[_UuidsDumper]
        | type[_TextsDumper]
        | type[_TimesDumper]
        | type[_MicrosecondsDumper],
    ]
] = {
    Int8s: _Int8sDumper,
    Uuids: _UuidsDumper,
    Texts: _TextsDumper,
    Times: _TimesDumper,
    Microseconds: _MicrosecondsDumper,
}
