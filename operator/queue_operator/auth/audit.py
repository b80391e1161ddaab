"""Who changed what: a line of JSON before each change and one after it, on a logger of its own."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, Final

from queue_operator.auth.protocol import Identity
from queue_operator.domain.errors import QueueError

AUDIT_LOGGER: Final = "queue_operator.audit"
DONE: Final = "OK"
"""The outcome of a change that was made; of one that was refused it is the code of the error."""
UNKNOWN: Final = "UNKNOWN"
"""The server stopped before it knew."""
LEFT: Final = "LEFT"
"""Of a stream: its caller has left it."""
_MOST_CHARACTERS: Final = 1024

logger = logging.getLogger(AUDIT_LOGGER)


class Stage(StrEnum):
    """INTENT: the change is allowed, and is now tried. RESULT: what became of it."""

    INTENT = "intent"
    RESULT = "result"


class Audit:
    """Writes the lines. A filter that is longer than a line should be is cut."""

    @contextmanager
    def change(
        self,
        identity: Identity,
        *,
        request_id: str,
        verb: str,
        operation: str,
        namespace: str,
        cut: str = UNKNOWN,
        **what: Any,
    ) -> Iterator[dict[str, Any]]:
        """Around a change. `what` says which job or filter: `job`, `filter`, `dry_run`; what is
        put into the mapping that this gives goes into the second line too: `count`. Both lines
        have the same `request_id`. `cut` is the outcome of what is cut off.
        """
        head = {
            "request_id": request_id,
            "who": identity.name,
            "verb": verb,
            "operation": operation,
            "namespace": namespace,
        }
        told: dict[str, Any] = {}
        _write({**head, "stage": Stage.INTENT, **what})
        outcome = cut
        try:
            yield told
            outcome = DONE
        except QueueError as error:
            outcome = error.code
            raise
        except Exception:
            outcome = QueueError.code
            raise
        finally:
            _write({**head, "stage": Stage.RESULT, "outcome": outcome, **what, **told})


def _write(line: dict[str, Any]) -> None:
    if logger.isEnabledFor(logging.INFO):
        short = {name: _short(value) for name, value in line.items()}
        text = json.dumps(short, ensure_ascii=True, separators=(",", ":"))
        logger.info("%s", text, extra={"about": {"audit": short}})


def _short(value: Any) -> Any:
    if isinstance(value, bool | int | None):
        return value
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    if len(text) <= _MOST_CHARACTERS:
        return value
    return f"{text[:_MOST_CHARACTERS]}... ({len(text)} characters)"
