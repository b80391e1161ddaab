"""What the controller needs of a store, and what it counts."""

from collections.abc import Awaitable, Callable
from ctypes import c_longlong
from dataclasses import dataclass, field
from typing import Protocol

from queue_operator.backends.protocol import (
    Backend,
    ResourceMirror,
    Sessions,
    Signals,
    Suspensions,
)
from queue_operator.controller.figures import Figures


class ControllerBackend(Backend, ResourceMirror, Suspensions, Sessions, Signals, Protocol):
    """A store that can carry custom resources."""


BackendFactory = Callable[[], Awaitable[ControllerBackend]]


@dataclass(slots=True)
class ControllerStats:
    """Counters since the start, but for `over_quota` and `refused_namespaces`, which are current.
    Both may be memory that the process shares with the one that serves the metrics, as may
    `figures`, in which the rest of what that one shows is counted.
    """

    events: int = 0
    events_skipped: int = 0
    events_put_off: int = 0
    taken_in: int = 0
    refused: int = 0
    over_quota: c_longlong = field(default_factory=c_longlong)
    refused_namespaces: c_longlong = field(default_factory=c_longlong)
    cancelled: int = 0
    detached: int = 0
    store_retries: int = 0
    status_retried: int = 0
    status_throttled: int = 0
    edits_observed: int = 0
    workers_created: int = 0
    workers_deleted: int = 0
    worker_status_written: int = 0
    resyncs: int = 0
    resync_repairs: int = 0
    figures: Figures = field(default_factory=Figures)
