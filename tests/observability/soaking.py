"""A queue in good health for a while: real servers and workers with a steady load, some attempts
that fail and are retried, rolling restarts and a change of replicas, seen by a real Prometheus.
"""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psycopg
from tests.integration.metrics.fleet import COUNTERS, Totals, stored
from tests.waiting import DEADLINE_S

from observability.asking import Period
from observability.local import NAMESPACE, Local
from queue_operator.client import Submission
from queue_operator.client.requests import Backoff
from queue_operator.devcluster.processes import wait_until
from queue_operator.domain.retry import BackoffStrategy

HANDLERS: Final = Path(__file__).parent / "soaked"
_TICK_S: Final = 0.25
_EVERY: Final = 10
"""One page in so many fails at first."""
_BACKOFF: Final = Backoff(strategy=BackoffStrategy.CONSTANT, initial_delay="1s")


_UNENDED: Final = """
    SELECT count(*) FROM (SELECT FROM queue_operator.ready UNION ALL
                          SELECT FROM queue_operator.lease) AS unended
"""


class Load:
    """Submits a few jobs of three types four times a second."""

    def __init__(self, queue: Local) -> None:
        self._client = queue.client
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load")
        self._failed: BaseException | None = None
        self.submitted = self.batches = 0
        self.stumbling = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Raises what went wrong: nobody who submits may notice a rolling restart."""
        self._thread.start()
        try:
            yield
        finally:
            self._ended.set()
            self._thread.join()
            self._client.close()
        if self._failed is not None:
            raise self._failed

    def _run(self) -> None:
        try:
            while not self._ended.wait(_TICK_S):
                self._client.submit_batch(list(self._jobs()), namespace=NAMESPACE)
                self.batches += 1
        except BaseException as error:
            self._failed = error

    def _jobs(self) -> Iterator[Submission]:
        for kind, payload in (
            ("send-mail", {"host": "mail.example"}),
            ("resize", {"seconds": 0.3}),
            ("resize", {"seconds": 0.1}),
            ("index-page", {"stumbles": self.submitted % (4 * _EVERY) < 4}),
        ):
            self.stumbling += "stumbles" in payload and bool(payload["stumbles"])
            self.submitted += 1
            yield Submission(type=kind, payload=payload, max_attempts=3, backoff=_BACKOFF)


def change_replicas(queue: Local, until_s: float) -> None:
    """Two rolling restarts, the second with a replica more, which then goes; the rest of the time
    passes with the load alone.
    """
    changes = (queue.roll, queue.add, queue.roll, queue.end)
    part_s = (until_s - time.time()) / (len(changes) + 1)
    for number, change in enumerate(changes, 1):
        _pass_until(until_s - part_s * (len(changes) + 1 - number))
        change()
    _pass_until(until_s)


def _pass_until(at_s: float) -> None:
    threading.Event().wait(max(0.0, at_s - time.time()))


def alerts(queue: Local, period: Period, state: str) -> dict[str, float]:
    """Those that were in that state at any evaluation, and for about how long."""
    asked = f'sum by (alertname) (ALERTS{{alertstate="{state}"}})'
    found = queue.prometheus.api.over(asked, period)
    return {one.labels["alertname"]: len(one.points) * period.step_s for one in found}


def absences(queue: Local, period: Period) -> dict[str, str]:
    """Of each target that did not answer, when that was, in seconds of the period."""
    found = queue.prometheus.api.over("up == 0", period)
    return {
        one.labels["instance"]: f"{len(one.points) * period.step_s:.0f} s from "
        f"{one.points[0][0] - period.start_s:.0f} to {one.points[-1][0] - period.start_s:.0f}"
        for one in found
    }


def await_calm(queue: Local) -> None:
    """Until no alert is about to fire."""

    def calm() -> bool:
        return not queue.prometheus.api.get("alerts")["alerts"]

    wait_until(calm, "no alert to be pending", DEADLINE_S)


def shown(queue: Local, since_s: float) -> Totals:
    """What the counters reached in each process, as Prometheus knows it."""
    window = f"{time.time() - since_s + 60:.0f}s"
    totals: Totals = Counter()
    for name, labels in COUNTERS.items():
        asked = f"sum by ({', '.join(labels)}) (max_over_time({name}[{window}]))"
        for one in queue.prometheus.api.at(asked, time.time()):
            key = (name, *(one.labels.get(label, "") for label in labels))
            totals[key] += int(one.last)
    return +totals


def await_sums(queue: Local, since_s: float) -> Totals:
    """Until what Prometheus knows is what the history of the jobs tells; gives that. Raises
    AssertionError with what is lacking and what is too much.
    """
    wait_until(lambda: _is_idle(queue), "all jobs to have ended", DEADLINE_S)
    expected = stored(queue.dsn)
    try:
        wait_until(lambda: shown(queue, since_s) == expected, "the counters", DEADLINE_S)
    except Exception as error:
        found = shown(queue, since_s)
        raise AssertionError(
            f"lacking: {expected - found}; too many: {found - expected}"
        ) from error
    return expected


def _is_idle(queue: Local) -> bool:
    with psycopg.connect(queue.dsn) as connection:
        return connection.execute(_UNENDED).fetchall() == [(0,)]
