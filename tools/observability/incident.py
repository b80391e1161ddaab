"""Plants an incident on a local queue and draws what is seen: `python -m observability.incident`.

Three faults, one after the other: a type that fails, a worker that dies, a backlog that grows. Of
each the alerts that speak are printed, and the dashboards are drawn.
"""

import argparse
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from observability.asking import NoAnswer, Period
from observability.draw import answered, boards
from observability.drawing import page, save
from observability.local import NAMESPACE, Local, local
from queue_operator.client import Submission
from queue_operator.devcluster.errors import DevClusterError
from queue_operator.devcluster.processes import wait_until
from queue_operator.domain.errors import QueueError

TOLD_S: Final = 120.0
TICK_S: Final = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault of the incident.

    Attributes:
        plant: what is done to the queue; what is to be undone is in `mend`.
        alerts: those that speak of it.

    """

    name: str
    story: str
    plant: Callable[["Traffic", Local], None]
    mend: Callable[["Traffic", Local], None]
    alerts: frozenset[str]


class Traffic:
    """Submits jobs all the time, as many a second as it says."""

    def __init__(self, queue: Local) -> None:
        self.mails_s = 8.0
        self.pictures_s = 10.0
        self.host = "mail.example"
        self._client = queue.client
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._failed: QueueError | None = None

    @contextmanager
    def running(self) -> Iterator["Traffic"]:
        """Raises the error of a submission that failed."""
        self._thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            self._thread.join()
            self._client.close()
        if self._failed is not None:
            raise self._failed

    def _run(self) -> None:
        owed = {"send-mail": 0.0, "resize": 0.0}
        while not self._ended.wait(TICK_S):
            owed["send-mail"] += self.mails_s * TICK_S
            owed["resize"] += self.pictures_s * TICK_S
            jobs = [self._job(name) for name, count in owed.items() for _ in range(int(count))]
            owed = {name: count % 1 for name, count in owed.items()}
            try:
                if jobs:
                    self._client.submit_batch(jobs, namespace=NAMESPACE)
            except QueueError as error:
                self._failed = error
                return

    def _job(self, name: str) -> Submission:
        payload = {"host": self.host} if name == "send-mail" else {"seconds": 0.3}
        return Submission(type=name, payload=payload, max_attempts=3)


def _break_host(traffic: Traffic, _: Local) -> None:
    traffic.host = "mail.invalid"


def _mend_host(traffic: Traffic, _: Local) -> None:
    traffic.host = "mail.example"


def _kill(_: Traffic, queue: Local) -> None:
    queue.kill("media-1")


def _flood(traffic: Traffic, _: Local) -> None:
    traffic.pictures_s = 400.0


def _calm(traffic: Traffic, _: Local) -> None:
    traffic.pictures_s = 10.0


def _nothing(_: Traffic, __: Local) -> None:
    """The worker stays dead: the next fault comes on top."""


FAULTS: Final = (
    Fault(
        name="failing-type",
        story="Mail goes to a host that is not there: type send-mail fails.",
        plant=_break_host,
        mend=_mend_host,
        alerts=frozenset({"QueueOperatorTypeFails", "QueueOperatorJobsDie"}),
    ),
    Fault(
        name="dead-worker",
        story="Worker media-1 is killed while it has jobs.",
        plant=_kill,
        mend=_nothing,
        alerts=frozenset({"QueueWorkerDown"}),
    ),
    Fault(
        name="growing-backlog",
        story="Thirty times as many pictures are submitted as are made.",
        plant=_flood,
        mend=_calm,
        alerts=frozenset({"QueueOperatorBacklogGrows"}),
    ),
)


def play(
    queue: Local, faults: Sequence[Fault] = FAULTS, *, calm_s: float, shown_s: float
) -> Iterator[tuple[Fault, Period]]:
    """Plants one fault after the other; each with the time to look at, while it lasts.

    Raises NotReady if its alerts do not speak.
    """
    with Traffic(queue).running() as traffic:
        _pass(calm_s)
        for fault in faults:
            began = time.time()
            fault.plant(traffic, queue)
            wait_until(
                lambda fault=fault: fault.alerts <= queue.prometheus.firing(),  # type: ignore[misc]
                f"{sorted(fault.alerts)}",
                TOLD_S,
            )
            _pass(shown_s - (time.time() - began))
            now = time.time()
            yield fault, Period(start_s=began - calm_s, end_s=now, scrape_s=1.0, points=120)
            fault.mend(traffic, queue)
            _pass(calm_s)


def _pass(for_s: float) -> None:
    threading.Event().wait(max(0.0, for_s))


def main() -> int:
    parser = argparse.ArgumentParser(prog="observability.incident", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("pictures"), help="folder to write to")
    parser.add_argument("--calm", type=float, default=30.0, help="seconds before each fault")
    parser.add_argument("--shown", type=float, default=30.0, help="seconds that each is shown")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    try:
        with local() as queue:
            print(f"Prometheus: {queue.prometheus.url}")
            print(f"REST and page: http://127.0.0.1:{queue.rest.port}", flush=True)
            for fault, period in play(queue, calm_s=given.calm, shown_s=given.shown):
                print(f"\n{fault.story}")
                print(f"  alerts: {', '.join(sorted(queue.prometheus.firing()))}")
                for file in _drawn(queue, fault, period, given.out):
                    print(f"  {file}", flush=True)
    except (DevClusterError, NoAnswer, QueueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _drawn(queue: Local, fault: Fault, period: Period, folder: Path) -> Iterator[Path]:
    for name, board in boards().items():
        file = folder / f"{fault.name}-{name}.png"
        save(page(board, answered(board, queue.prometheus.api, period)), file)
        yield file


if __name__ == "__main__":
    sys.exit(main())
