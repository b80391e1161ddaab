"""Values as JSON that loses nothing of them: what cannot be written so is refused.

Where a serialiser is lenient (NaN as null, a secret as asterisks, two keys that are one as text),
whoever reads the document takes another value for the one that was given, and nobody is told.
"""

import dataclasses
import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import lru_cache, partial
from math import isfinite
from typing import Any, Final

from pydantic import BaseModel, Secret, SecretBytes, SecretStr, TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic_core import to_jsonable_python

from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.texts import kind_of
from queue_operator.domain.validation import check_json_depth

_HIDDEN: Final = (Secret, SecretBytes, SecretStr)
_FAULTS_TOLD: Final = 10
_MASKED: Final = (
    "is a secret, which would be written as asterisks: put get_secret_value() into a plain field, "
    "or give the field a serializer"
)
_NO_NUMBER: Final = "NaN and Infinity are no JSON"

Place = tuple[str, ...]


class Lossy(ValueError):
    """A value that JSON would not give back; the text says where, and what to do."""

    def __init__(self, place: Place, reason: str) -> None:
        super().__init__(f"{'.'.join(place)}: {reason}" if place else reason)


class Writer:
    """Writes values of one type, which pydantic knows."""

    def __init__(self, adapter: TypeAdapter[Any]) -> None:
        self._adapter = adapter
        self._may_repeat_keys = _has_keys_of_other_kinds(adapter.core_schema)

    def document(self, value: object, *, round_trip: bool = False, by_alias: bool = True) -> bytes:
        """Raises ValueError for what JSON cannot hold. `round_trip` leaves out what is computed."""
        options: Any = {"by_alias": by_alias, "round_trip": round_trip}
        document = self._adapter.dump_json(value, **options)
        if self._may_repeat_keys:
            json.loads(document, object_pairs_hook=_once_each)
        if b"null" in document or b"*" in document:
            plain = self._adapter.dump_python(value, **options)
            for place, reason in _losses(plain, json.loads(document), ()):
                raise Lossy(place, reason)
        return document

    def readable(self, value: object) -> bytes:
        """A document of which the same type makes the same value. Raises Lossy where there is
        none.
        """
        try:
            return self._readable(value, by_alias=True)
        except Lossy as first:
            try:
                return self._readable(value, by_alias=False)
            except Lossy:
                raise first from None

    def _readable(self, value: object, *, by_alias: bool) -> bytes:
        written = self.document(value, round_trip=True, by_alias=by_alias)
        try:
            read = self._adapter.validate_json(written)
        except ValidationError as error:
            told = faults(error, "it")
            raise Lossy((), f"what is written of it cannot be read: {told}; {_ADVICE}") from None
        again = json.loads(self.document(read, round_trip=True, by_alias=by_alias))
        given = json.loads(written)
        # Of a set the order may differ; of what has no type only the text is known.
        if again != given and self._plain(read) != self._plain(value):
            place = _difference(given, again, ())
            raise Lossy(place, f"is not read from where it is written; {_ADVICE}")
        return written

    def _plain(self, value: object) -> object:
        return self._adapter.dump_python(value, round_trip=True)


_ADVICE: Final = "a field needs one name for both, as alias=… gives it"


def faults(error: ValidationError, whole: str) -> str:
    """One clause per field; without the values, which may be private."""
    found = error.errors(include_url=False, include_input=False, include_context=False)
    clauses = [
        f"{'.'.join(str(part) for part in fault['loc']) or whole}: {fault['msg']}"
        for fault in found[:_FAULTS_TOLD]
    ]
    if len(found) > _FAULTS_TOLD:
        clauses.append(f"and {len(found) - _FAULTS_TOLD} more")
    return "; ".join(clauses)


def document_of(value: object, *, readable: bool = False) -> bytes:
    """The JSON of a value of any kind; `readable` models can be made of it again.

    Raises ValueError, TypeError or RecursionError for what cannot be written.
    """
    if (writer := _writer_of(value)) is not None:
        return writer.readable(value) if readable else writer.document(value)
    document = json.dumps(
        value,
        allow_nan=False,
        ensure_ascii=False,
        separators=(",", ":"),
        default=partial(_jsonable, readable=readable),
    ).encode()
    if b"{" in document:
        _check_depth(document)
        _check_keys(value, ())
    return document


def _check_depth(document: bytes) -> None:
    """What nests deeper is refused anyway, and cannot be walked."""
    try:
        check_json_depth("", document)
    except InvalidArgument as error:
        raise Lossy((), error.reason) from None


def _jsonable(value: object, *, readable: bool) -> object:
    if isinstance(value, Set):
        raise TypeError(f"{kind_of(value)} has no order: return a sorted list")
    if isinstance(value, _HIDDEN):
        raise Lossy((), f"{kind_of(value)} {_MASKED}")
    if isinstance(value, Mapping):
        _check_keys(plain := dict(value), ())
        return plain
    if isinstance(value, deque):
        return list(value)
    if (writer := _writer_of(value)) is not None:
        return json.loads(writer.readable(value) if readable else writer.document(value))
    return to_jsonable_python(value)


def _writer_of(value: object) -> Writer | None:
    """That of a model or a dataclass; None for anything else."""
    kind: Any = type(value)
    if isinstance(value, BaseModel) or dataclasses.is_dataclass(kind):
        return _writer_for(kind)
    return None


@lru_cache(maxsize=1024)
def _writer_for(kind: Any) -> Writer | None:
    try:
        return Writer(TypeAdapter(kind))
    except (PydanticUserError, PydanticUndefinedAnnotation):
        return None


def _check_keys(value: object, place: Place) -> None:
    """Raises Lossy for a key that is no text, which would become one."""
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise Lossy(
                    place,
                    f"has a key that is {kind_of(key)}; keys of JSON are texts: make it one, or "
                    "annotate what it is, as in dict[int, str]",
                )
            _check_keys(item, (*place, key))
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            _check_keys(item, (*place, str(number)))


def _once_each(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for number, key in enumerate(keys) if key in keys[:number])
        raise Lossy((), f"has two keys that are the same as text: {twice!r}")
    return found


def _has_keys_of_other_kinds(schema: Any) -> bool:
    """Whether a mapping of a core schema may have keys that are no texts."""
    if isinstance(schema, Mapping):
        kind = schema.get("type")
        if kind == "any":
            return True
        if kind == "dict" and _type_of(schema.get("keys_schema")) != "str":
            return True
        return any(map(_has_keys_of_other_kinds, schema.values()))
    if isinstance(schema, list | tuple):
        return any(map(_has_keys_of_other_kinds, schema))
    return False


def _type_of(schema: Any) -> object:
    return schema.get("type") if isinstance(schema, Mapping) else None


def _losses(plain: object, told: object, place: Place) -> Iterator[tuple[Place, str]]:
    """Where the document says something else than the value that it was written from."""
    if (reason := _loss(plain, told)) is not None:
        yield place, reason
    for key, item, written in _parts(plain, told):
        yield from _losses(item, written, (*place, key) if key else place)


def _loss(plain: object, told: object) -> str | None:
    if isinstance(plain, _HIDDEN):
        return _MASKED if told == str(plain) and told != _open(plain) else None
    if isinstance(plain, float) and told is None and not isfinite(plain):
        return _NO_NUMBER
    return None


def _parts(plain: object, told: object) -> Iterator[tuple[str, object, object]]:
    """What both hold, with the key or number of each; of sets, without an order, all with all."""
    match plain:
        case Mapping() if isinstance(told, dict) and len(plain) == len(told):
            yield from zip(told, plain.values(), told.values(), strict=True)
        case Set() if isinstance(told, list):
            yield from (("", item, written) for item in plain for written in told)
        case Sequence() if isinstance(told, list) and len(plain) == len(told):
            numbers = map(str, range(len(told)))
            yield from zip(numbers, plain, told, strict=True)


def _open(secret: Any) -> object:
    value = secret.get_secret_value()
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _difference(one: object, other: object, place: Place) -> Place:
    """The first place at which two documents differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key, item in one.items():
            if key not in other or other[key] != item:
                return _difference(item, other.get(key), (*place, key))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, (item, written) in enumerate(zip(one, other, strict=True)):
            if item != written:
                return _difference(item, written, (*place, str(number)))
    return place
