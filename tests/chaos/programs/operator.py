"""`queue-operator serve` that also writes what its streams see. SIGUSR1: writes their slots."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

from tests.chaos.programs.parent import end_with_parent

from queue_operator import bootstrap
from queue_operator.cli.serve import serve
from queue_operator.queue.service import QueueService
from queue_operator.testing.history import Log, record_host, record_usage


def main() -> None:
    end_with_parent(int(os.environ["CHAOS_PARENT"]))
    # It may be asked before it has a queue.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    name = os.environ["CHAOS_NAME"]
    log = Log(name, Path(os.environ["CHAOS_LOG"]))

    def recorded(*args: Any, **options: Any) -> QueueService:
        queue = record_host(QueueService(*args, **options), log)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, record_usage, queue, log)
        return queue

    vars(bootstrap)["QueueService"] = recorded
    serve()


if __name__ == "__main__":
    main()
