"""How far the log of a job was read, so that only what is new need be asked for."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.running import LOG_ATTEMPTS, AttemptLog

_VERSIONS: Final = 2**31
"""No lease version is as high."""
_LINES: Final = 2**63
_PLACE: Final = re.compile(r"([0-9]{1,10})\.([0-9]{1,19})")


class Span(NamedTuple):
    """Lines behind `line` of the attempt `version`, and all of later ones before `until`."""

    version: int
    line: int
    until: int


@dataclass(frozen=True, slots=True)
class LogCursor:
    """The last line that was read of each attempt, by lease version. Once it knows as many as are
    kept, older ones are not read any more.
    """

    lines: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> "LogCursor":
        """What `str` made of one. Raises InvalidArgument, which names `cursor`."""
        places = [_PLACE.fullmatch(one) for one in text.split("-")] if text else []
        lines = {int(place[1]): int(place[2]) for place in places if place}
        if (
            len(lines) < len(places)
            or len(lines) > LOG_ATTEMPTS
            or not all(version < _VERSIONS and line < _LINES for version, line in lines.items())
        ):
            raise InvalidArgument("cursor", "must be the next_cursor of a log that was read")
        return cls(lines)

    def __str__(self) -> str:
        return "-".join(f"{version}.{line}" for version, line in sorted(self.lines.items()))

    def read_of(self, version: int) -> int:
        """The number of the last line that was read of an attempt; 0 before the first."""
        return self.lines.get(version, 0)

    def spans(self) -> list[Span]:
        """Where lines may be that were not read."""
        known = sorted(self.lines.items())
        begins = known if len(known) >= LOG_ATTEMPTS else [(0, 0), *known]
        ends = [version for version, _ in begins[1:]] + [_VERSIONS]
        return [Span(*begin, until) for begin, until in zip(begins, ends, strict=True)]

    def after(self, found: Iterable[AttemptLog]) -> "LogCursor":
        """The next one, once `found` was read."""
        read = {one.version: one.lines[-1].number for one in found if one.lines}
        newest = sorted({**self.lines, **read}.items())[-LOG_ATTEMPTS:]
        return LogCursor(dict(newest))


FROM_THE_START: Final = LogCursor()
