"""What the queue has to do with the API server: nothing. While only that one fails, no session of a
worker ends or begins.
"""

from typing import Final

from tests.chaos.plan import API

from queue_operator.testing.history import History, Kind, Record

_API: Final = {fault.name for fault in API}
_DISTURBED: Final = (Kind.STREAM_OPENED, Kind.STREAM_CLOSED)


def alone(history: History) -> list[Record]:
    """The faults of the API server that struck before anything else did."""
    faults = list(history.of(Kind.FAULT))
    others = [_since(one) for one in faults if one.said["fault"] not in _API]
    first = min(others, default=float("inf"))
    return [one for one in faults if one.said["fault"] in _API and _since(one) < first]


def disturbed(history: History) -> list[str]:
    """What it disturbed meanwhile."""
    struck = alone(history)
    others = [_since(one) for one in history.of(Kind.FAULT) if one.said["fault"] not in _API]
    since = min(map(_since, struck), default=float("inf"))
    until = min(others, default=float("inf"))
    return [
        f"while only the API server failed: {record}"
        for record in history.of(*_DISTURBED)
        if since <= record.at < until
    ]


def _since(record: Record) -> float:
    return float(str(record.said["since"]))
