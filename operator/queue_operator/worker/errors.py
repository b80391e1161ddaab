"""What a handler raises to say how a job ends, and what can go wrong with a worker itself.

Raised by handlers                      Raised by the worker
├── Retry           try again later     ├── InvalidHandler    a registration makes no sense
├── PermanentError  never try again     ├── InvalidSettings   the environment is wrong
└── Cancelled       I stopped           ├── UnusableToken     its file holds none; tried again
                                        ├── SessionRefused    the server will not have us
                                        └── SessionEnded      the server sent us away
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from queue_operator.domain.errors import InvalidArgument, QueueError
from queue_operator.domain.texts import text_of
from queue_operator.worker.durations import Duration, length_of

INVALID_PAYLOAD = "INVALID_PAYLOAD"
INVALID_RESULT = "INVALID_RESULT"
RESULT_NOT_STORABLE = "RESULT_NOT_STORABLE"


class Retry(Exception):
    """The attempt failed; try again `after` that long (seconds, a `timedelta`, or text
    such as "5m" or "PT5M"), or after the job's own backoff when None, the default. The attempt
    counts towards `max_attempts`. Raises InvalidArgument for no duration, or one below 0 or
    above 100 years.
    """

    def __init__(
        self, message: str = "", *, after: Duration | None = None, code: str = "RETRY"
    ) -> None:
        super().__init__(message or "the handler asked for a retry")
        self.after_s = None if after is None else length_of("after", after)
        self.code = code if isinstance(code, str) else text_of(code)


class PermanentError(Exception):
    """No attempt can succeed: the job ends at once, whatever attempts are left.

    `code` and `context` are stored with the failure and shown to whoever looks at it; entries
    that are None are left out.
    """

    def __init__(
        self,
        message: str = "",
        *,
        code: str = "PERMANENT",
        context: Mapping[str, object] | None = None,
    ) -> None:
        self.code = code if isinstance(code, str) else text_of(code)
        super().__init__(message or self.code)
        self.context = {text_of(k): text_of(v) for k, v in (context or {}).items() if v is not None}


class Cancelled(Exception):
    """The handler noticed a cancel request and stopped."""

    def __init__(self, message: str = "the job was cancelled") -> None:
        super().__init__(message)


class InvalidHandler(InvalidArgument):
    """A handler cannot be registered; `reason` says what to change."""


class InvalidSettings(QueueError):
    """One or more environment variables are wrong; `faults` has one sentence for each."""

    code = "INVALID_SETTINGS"

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = tuple(faults)


class UnusableToken(OSError):
    """A file that can be read and holds no token; another one may be there soon."""

    def __init__(self, file: Path) -> None:
        super().__init__(f"{file} holds no bearer token: that is one line of ASCII characters")
        self.file = file


class SessionRefused(QueueError):
    """The server refused this worker: its credentials, its rights or its hello."""

    code = "SESSION_REFUSED"


class SessionEnded(QueueError):
    """The server ended the session and said not to come back as this process."""

    code = "SESSION_ENDED"
