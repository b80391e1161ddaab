"""Reads the lines of the audit."""

import json
import logging
from typing import Any

import pytest

from queue_operator.auth.audit import AUDIT_LOGGER


class Audited:
    """What was written since it was made."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, AUDIT_LOGGER)
        self._caplog = caplog

    def lines(self, stage: str | None = None) -> list[dict[str, Any]]:
        """All of them, or those of one stage."""
        texts = [one.getMessage() for one in self._caplog.records if one.name == AUDIT_LOGGER]
        read = [json.loads(text) for text in texts]
        return [line for line in read if stage in (None, line["stage"])]

    def texts(self) -> list[str]:
        return [one.getMessage() for one in self._caplog.records if one.name == AUDIT_LOGGER]
