"""Messages as rows of a file."""

import sqlite3
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from pydantic import TypeAdapter

from queue_operator.backends.outbox import Post
from queue_operator.backends.sql import load
from queue_operator.backends.sqlite.rows import instant, microseconds, optional_us
from queue_operator.backends.webhooks import Message, MessageSearch, MessageState

_KEEP: Final = load(__package__, "message_keep")
_FIND: Final = load(__package__, "message_find")
_DUE: Final = load(__package__, "message_due")
_LISTED: Final = load(__package__, "message_listed")
_OF_JOB: Final = load(__package__, "message_of_job")
_OLDEST: Final = load(__package__, "message_oldest")
_ENDED: Final = load(__package__, "message_ended")
_COUNTS: Final = load(__package__, "message_counts")
_LAST: Final = "SELECT seq FROM sqlite_sequence WHERE name = 'message'"
_REMOVE: Final = "DELETE FROM message WHERE number = ?"
_SINCE: Final = "SELECT min(next_at) FROM message WHERE next_at IS NOT NULL"
_MESSAGE: Final = TypeAdapter(Message)


class SqliteOutbox:
    """For the length of one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def add(self, message: Callable[[int], Message]) -> None:
        last = self._connection.execute(_LAST).fetchone()
        number = 1 + (last[0] if last else 0)
        self.keep(Post(number, message(number)))

    def find(self, number: int) -> Post | None:
        found = self._find(_FIND, number=number)
        return found[0] if found else None

    def _find(self, statement: str, **parameters: object) -> list[Post]:
        return [
            Post(number, _MESSAGE.validate_json(record), bool(held))
            for number, held, record in self._connection.execute(statement, parameters)
        ]

    def keep(self, post: Post) -> None:
        message = post.message
        row = {
            "number": post.number,
            "namespace": message.namespace,
            "job_id": message.job_id,
            "state": message.state.value,
            "receiver": message.receiver,
            "next_at": optional_us(message.next_at),
            "last_at": optional_us(message.last_at),
            "held": post.is_held,
            "record": _MESSAGE.dump_json(message).decode(),
        }
        self._connection.execute(_KEEP, row)

    def remove(self, number: int) -> None:
        self._connection.execute(_REMOVE, (number,))

    def due(self, now: datetime, per_receiver: int) -> list[Post]:
        return self._find(_DUE, now=microseconds(now), per_receiver=per_receiver)

    def listed(
        self, search: MessageSearch, states: Sequence[MessageState], before: int, limit: int
    ) -> list[Post]:
        wanted = {"namespace": search.namespace, "before": before, "max_rows": limit}
        found: list[Post] = []
        for state in states:
            if search.job_id:
                found += self._find(_OF_JOB, job_id=search.job_id, state=state.value, **wanted)
            else:
                found += self._find(_LISTED, state=state.value, **wanted)
        return sorted(found, reverse=True)[:limit]

    def oldest(self, namespace: str, states: Sequence[MessageState], limit: int) -> list[Post]:
        wanted = {"namespace": namespace, "max_rows": limit}
        found = [
            one for state in states for one in self._find(_OLDEST, state=state.value, **wanted)
        ]
        return sorted(found)[:limit]

    def ended(self, state: MessageState, until: datetime, limit: int) -> list[Post]:
        return self._find(_ENDED, state=state.value, until=microseconds(until), max_rows=limit)

    def counts(self) -> dict[tuple[str, MessageState], int]:
        rows = self._connection.execute(_COUNTS)
        return {(space, MessageState(state)): count for space, state, count in rows}

    def due_since(self) -> datetime | None:
        [since] = self._connection.execute(_SINCE).fetchone()
        return None if since is None else instant(since)
