"""Who changed what: one line per change, as JSON, on a logger of its own."""

import json
import logging
from typing import Any, Final

from queue_operator.auth.protocol import Identity

AUDIT_LOGGER: Final = "queue_operator.audit"
_MOST_CHARACTERS: Final = 1024

logger = logging.getLogger(AUDIT_LOGGER)


class Audit:
    """Writes the lines. A filter that is longer than a line should be is cut."""

    def changed(
        self,
        identity: Identity,
        *,
        request_id: str,
        verb: str,
        operation: str,
        namespace: str,
        **what: Any,
    ) -> None:
        """`what` says which job or filter, and how many: `job`, `filter`, `count`, `dry_run`."""
        if not logger.isEnabledFor(logging.INFO):
            return
        line = {
            "request_id": request_id,
            "who": identity.name,
            "verb": verb,
            "operation": operation,
            "namespace": namespace,
            **{name: _short(value) for name, value in what.items()},
        }
        logger.info("%s", json.dumps(line, ensure_ascii=True, separators=(",", ":")))


def _short(value: Any) -> Any:
    if isinstance(value, bool | int | None):
        return value
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    if len(text) <= _MOST_CHARACTERS:
        return value
    return f"{text[:_MOST_CHARACTERS]}... ({len(text)} characters)"
