"""The command `queue-worker MODULE:ATTRIBUTE`."""

import argparse
import importlib
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from queue_operator import __version__
from queue_operator.domain.errors import QueueError
from queue_operator.worker import logs
from queue_operator.worker.errors import InvalidSettings, SessionEnded, SessionRefused
from queue_operator.worker.worker import Worker

logger = logging.getLogger(__name__)

REFUSED: Final = 1
MISUSED: Final = 2

EPILOG: Final = """\
environment:
  QUEUE_OPERATOR_SERVER       host:port of the operator's gRPC door (localhost:50051)
  QUEUE_OPERATOR_TOKEN_FILE   file with the bearer token, read again on each connect
  QUEUE_OPERATOR_CA_FILE      certificates to trust; the connection is then TLS
  QUEUE_OPERATOR_TAGS         demanded tags, separated by commas: only jobs that carry all
  QUEUE_OPERATOR_CAPACITY     jobs at a time (10)
  QUEUE_OPERATOR_NAMESPACE    namespace to serve, where no token proves one (default)
  QUEUE_OPERATOR_WORKER_NAME  name to show (POD_NAME, else the host's name)
  QUEUE_OPERATOR_GRACE_S      seconds for running jobs after SIGTERM (25)
  QUEUE_OPERATOR_REFUSED_S    seconds a refused worker tries again before it exits (30)
  QUEUE_OPERATOR_HEALTH_PORT  port of /healthz and /readyz, 0 for none (8081)

exit status: 0 drained after SIGTERM, 1 refused or sent away by the server, 2 misused.

example: queue-worker handlers:worker
"""


class TargetError(QueueError):
    """MODULE:ATTRIBUTE does not lead to a worker with handlers."""

    code = "INVALID_TARGET"


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status, unless a handler is stuck: then the process ends here."""
    options = _parser().parse_args(arguments)
    logs.configure(options.log_level, as_json=options.log_format == "json")
    try:
        worker = load(options.target)
        abandoned = worker.run()
    except (TargetError, InvalidSettings) as error:
        print(f"queue-worker: {error}", file=sys.stderr)
        return MISUSED
    except (SessionRefused, SessionEnded) as error:
        print(f"queue-worker: {error}", file=sys.stderr)
        return _leave(REFUSED, stuck=True)
    logger.info("drained")
    return _leave(0, stuck=abandoned > 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="queue-worker",
        description="Runs the handlers of a Worker against a queue-operator.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "target",
        metavar="MODULE:ATTRIBUTE",
        help="where the Worker is; MODULE is looked for in the current directory first",
    )
    parser.add_argument(
        "--log-level",
        default="info",
        choices=["debug", "info", "warning", "error"],
        help="lowest level to write (%(default)s)",
    )
    parser.add_argument(
        "--log-format",
        default="json",
        choices=["json", "text"],
        help="one JSON object a line, or plain text (%(default)s)",
    )
    parser.add_argument("--version", action="version", version=__version__)
    return parser


def load(target: str) -> Worker:
    """Imports the worker. Raises TargetError saying which part of the target is wrong."""
    module_name, _, attribute = target.partition(":")
    if not module_name or not attribute:
        raise TargetError(f"{target!r} must be MODULE:ATTRIBUTE, as in handlers:worker")
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise TargetError(
            f"there is no module {module_name!r} in {Path.cwd()} or installed"
        ) from None
    worker = getattr(module, attribute, None)
    if worker is None:
        raise TargetError(f"module {module_name!r} has no {attribute!r}")
    if not isinstance(worker, Worker):
        raise TargetError(f"{target} is a {type(worker).__name__}, not a queue_operator Worker")
    if not worker.registry.specs():
        raise TargetError(f"{target} has no handlers; add some with @{attribute}.handler(...)")
    return worker


def _leave(status: int, *, stuck: bool) -> int:
    """A handler's thread that never ends would keep the interpreter waiting for ever."""
    if stuck:
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return status


if __name__ == "__main__":
    sys.exit(main())
