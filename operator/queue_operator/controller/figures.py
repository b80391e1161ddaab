"""What the controller's process counts, in memory that the server's process reads: counters go on
when the process is started again, because they are not its own.

Each field has one writer, the controller's event loop, and a reader that may be late.
"""

from bisect import bisect_left
from ctypes import Array, Structure, c_double, c_longlong
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, ClassVar, Final

import aiohttp

from queue_operator.crd.names import FINISHED_SELECTOR, QUEUE_JOB, QUEUE_WORKER
from queue_operator.metrics.replica_table import LAG_BUCKETS_S

NO_ANSWER: Final = "none"
OTHER: Final = "other"
CODES: Final = (
    *("200", "201", "400", "401", "403", "404", "409", "410", "422", "429"),
    *("500", "502", "503", "504", NO_ANSWER, OTHER),
)
"""Statuses of the API server that are told apart."""
FINISHED_JOBS: Final = f"finished_{QUEUE_JOB.plural}"
RESOURCES: Final = (QUEUE_JOB.plural, FINISHED_JOBS, QUEUE_WORKER.plural, OTHER)
"""What is watched."""
_CODE_AT: Final = {code: at for at, code in enumerate(CODES)}
_RESOURCE_AT: Final = {resource: at for at, resource in enumerate(RESOURCES)}


class Figures(Structure):
    """Counters since the server began; `status_since_s` (0 for none) is of the clock that all
    processes of the machine share, `compared_at_s` (0 for never) the time of day.
    """

    _fields_: ClassVar[Any] = [
        ("owned_namespaces", c_longlong),
        ("intake_backlog", c_longlong),
        ("status_backlog", c_longlong),
        ("status_since_s", c_double),
        ("status_written", c_longlong),
        ("status_superseded", c_longlong),
        ("status_gone", c_longlong),
        ("status_refused", c_longlong),
        ("api_requests", c_longlong * len(CODES)),
        ("watch_restarts", c_longlong * len(RESOURCES)),
        ("compared_at_s", c_double),
        ("comparison_s", c_double),
        ("lag_counts", c_longlong * (len(LAG_BUCKETS_S) + 1)),
        ("lag_total_s", c_double),
    ]
    owned_namespaces: int
    intake_backlog: int
    status_backlog: int
    status_since_s: float
    status_written: int
    status_superseded: int
    status_gone: int
    status_refused: int
    api_requests: "Array[c_longlong]"
    watch_restarts: "Array[c_longlong]"
    compared_at_s: float
    comparison_s: float
    lag_counts: "Array[c_longlong]"
    lag_total_s: float

    def begin(self) -> None:
        """A new process knows nothing of what is now; what was counted stays."""
        self.owned_namespaces = self.intake_backlog = self.status_backlog = 0
        self.status_since_s = 0.0

    def observe_lag(self, seconds: float) -> None:
        self.lag_counts[bisect_left(LAG_BUCKETS_S, seconds)] += 1
        self.lag_total_s += seconds

    def asked(self, code: str) -> None:
        """The API server answered so."""
        self.api_requests[_CODE_AT.get(code, _CODE_AT[OTHER])] += 1

    def watched_again(self, resource: str) -> None:
        self.watch_restarts[_RESOURCE_AT.get(resource, _RESOURCE_AT[OTHER])] += 1

    def compared(self, took_s: float) -> None:
        """All QueueJobs, just now."""
        self.comparison_s = took_s
        self.compared_at_s = datetime.now(UTC).timestamp()

    def requests(self) -> dict[str, int]:
        """By code, of those that there were."""
        return {code: n for code, n in zip(CODES, self.api_requests, strict=True) if n}

    def throttled(self) -> int:
        """How many requests were answered 429."""
        return int(self.api_requests[_CODE_AT[str(HTTPStatus.TOO_MANY_REQUESTS.value)]])

    def restarts(self) -> dict[str, int]:
        """By resource, also of those whose watch has not begun again."""
        return dict(zip(RESOURCES, self.watch_restarts, strict=True))

    def writes(self) -> dict[str, int]:
        """By result."""
        return {
            "written": self.status_written,
            "superseded": self.status_superseded,
            "gone": self.status_gone,
            "refused": self.status_refused,
        }


def counting(figures: Figures) -> aiohttp.TraceConfig:
    """For a client of the API server: counts its requests, and its watches but for the first of
    each.
    """
    begun: set[tuple[str, str]] = set()

    async def answered(_: Any, __: Any, told: aiohttp.TraceRequestEndParams) -> None:
        figures.asked(str(told.response.status))

    async def failed(_: Any, __: Any, told: aiohttp.TraceRequestExceptionParams) -> None:
        if isinstance(told.exception, Exception):
            figures.asked(NO_ANSWER)

    async def asks(_: Any, __: Any, told: aiohttp.TraceRequestStartParams) -> None:
        if told.url.query.get("watch") != "true":
            return
        selector = told.url.query.get("fieldSelector", "")
        watch = told.url.path, selector
        if watch in begun:
            plural = told.url.path.rpartition("/")[2]
            finished = plural == QUEUE_JOB.plural and selector == FINISHED_SELECTOR
            figures.watched_again(FINISHED_JOBS if finished else plural)
        begun.add(watch)

    trace = aiohttp.TraceConfig()
    trace.on_request_start.append(asks)
    trace.on_request_end.append(answered)
    trace.on_request_exception.append(failed)
    return trace
