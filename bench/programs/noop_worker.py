"""`python -m bench.programs.noop_worker`: `queue-worker` with the worker of `bench.programs.noop`,
which begins when it is told and says how far it is, see `bench.lines`.
"""

import json
import sys
import threading

from bench.lines import say
from bench.programs.noop import noting
from queue_operator.worker import main as command

_TICK_S = 0.05


def main() -> None:
    say("ready")
    if sys.stdin.readline().strip() != "go":
        raise SystemExit("the benchmark has gone")
    over = threading.Event()
    threading.Thread(target=_tell, args=(over,), daemon=True).start()
    status = command.main(["--log-level", "warning", "bench.programs.noop:worker"])
    over.set()
    ended = {"event": "ended", "runs": noting.runs, "ms": noting.picked_up_ms}
    print(json.dumps(ended), flush=True)
    sys.exit(status)


def _tell(over: threading.Event) -> None:
    told = -1
    while not over.wait(_TICK_S):
        if noting.runs != told:
            told = noting.runs
            say("tick", runs=told)


if __name__ == "__main__":
    main()
