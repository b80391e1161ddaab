"""The worker of the benchmark: its handler does nothing but note when it began."""

import os
import time
from typing import Final

from bench.programs.stores import JOB_TYPE
from queue_operator.worker import JobContext, Worker

STAMPED: Final = "QUEUE_OPERATOR_BENCH_STAMPED"
"""Set where payloads begin with `stamp`."""
_STAMP_BYTES: Final = 8


def stamp(at_ns: int) -> bytes:
    """The first bytes of a payload: when its submission was due, on the machine's clock."""
    return at_ns.to_bytes(_STAMP_BYTES)


class Noting:
    """The handler, and what it has seen."""

    def __init__(self, *, stamped: bool) -> None:
        self._stamped = stamped
        self.runs = 0
        self.picked_up_ms: list[float] = []

    async def handle(self, ctx: JobContext, payload: bytes) -> bytes:
        self.runs += 1
        if self._stamped:
            due_ns = int.from_bytes(payload[:_STAMP_BYTES])
            self.picked_up_ms.append((time.monotonic_ns() - due_ns) / 1e6)
        return b"ok"


noting = Noting(stamped=STAMPED in os.environ)
worker = Worker()
worker.register(JOB_TYPE, noting.handle)
