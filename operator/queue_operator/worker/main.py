"""The command `queue-worker run MODULE:WORKER`."""

import argparse
import importlib
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Final

from queue_operator import __version__
from queue_operator.collector import collect_seldom
from queue_operator.domain.errors import QueueError
from queue_operator.domain.texts import kind_of
from queue_operator.observing.lines import LogFormat, LogLevel, configure
from queue_operator.worker.errors import InvalidSettings, SessionEnded, SessionRefused
from queue_operator.worker.reload import Reloader, command_of
from queue_operator.worker.settings import PREFIX
from queue_operator.worker.worker import Worker

logger = logging.getLogger(__name__)

REFUSED: Final = 1
MISUSED: Final = 2
_NO_FORMAT: Final = "none"
FORMATS: Final = (*(form.value for form in LogFormat), _NO_FORMAT)
LEVELS: Final = tuple(level.value for level in LogLevel)

EPILOG: Final = """\
environment:
  QUEUE_OPERATOR_SERVER       host:port of the operator's gRPC door (localhost:50051)
  QUEUE_OPERATOR_TOKEN_FILE   file with the bearer token, read again on each connect
  QUEUE_OPERATOR_CA_FILE      certificates to trust; the connection is then TLS
  QUEUE_OPERATOR_CERT_FILE    a certificate to show a server that asks for one,
  QUEUE_OPERATOR_KEY_FILE     and its key
  QUEUE_OPERATOR_TAGS         demanded tags, as in gpu,region=eu: only jobs that carry all
  QUEUE_OPERATOR_CAPACITY     jobs at a time (10)
  QUEUE_OPERATOR_NAMESPACE    namespace to serve, where no token proves one (default)
  QUEUE_OPERATOR_WORKER_NAME  name to show (POD_NAME, else the host's name)
  QUEUE_OPERATOR_GRACE_S      seconds for running jobs after SIGTERM (25; with --reload 1)
  QUEUE_OPERATOR_CLOSE_S      seconds for dependencies and lifespan to close after that (5)
  QUEUE_OPERATOR_PROCESS_START_S  seconds for a handler's process to be there (30)
  QUEUE_OPERATOR_REFUSED_S    seconds a refused worker tries again before it exits (30)
  QUEUE_OPERATOR_HEALTH_PORT  port of /healthz and /readyz, 0 for none (8081)
  QUEUE_OPERATOR_METRICS_PORT  port of /metrics, 0 for none (9091 with the extra `metrics`)
  QUEUE_OPERATOR_CAPTURE_LOGS  lowest level of logging lines of handlers in their jobs' logs (info),
                              or off
  OTEL_EXPORTER_OTLP_ENDPOINT  collector of traces, and all other variables of OpenTelemetry
  QUEUE_OPERATOR_LOG_FORMAT   as --log-format
  QUEUE_OPERATOR_LOG_LEVEL    as --log-level

exit status: 0 drained after SIGTERM, 1 refused or sent away by the server, or the lifespan
failed, 2 misused, or the module cannot be imported.

example: queue-worker run handlers:worker
"""


class TargetError(QueueError):
    """MODULE:WORKER does not lead to a worker with handlers."""

    code = "INVALID_TARGET"


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status, unless a handler is stuck: then the process ends here."""
    options = _options(sys.argv[1:] if arguments is None else arguments)
    if options.log_format != _NO_FORMAT:
        configure(options.log_level, LogFormat(options.log_format), "worker", force=True)
    if options.reload is not None:
        return _reload(options)
    try:
        worker = load(options.target)
        collect_seldom()
        abandoned = worker.run()
    except (TargetError, InvalidSettings) as error:
        if error.__cause__ is not None:
            traceback.print_exception(error.__cause__)
        print(f"queue-worker: {error}", file=sys.stderr)
        return MISUSED
    except (SessionRefused, SessionEnded) as error:
        print(f"queue-worker: {error}", file=sys.stderr)
        return _leave(REFUSED, stuck=True)
    logger.info("drained")
    return _leave(0, stuck=abandoned > 0)


def _reload(options: argparse.Namespace) -> int:
    folder = Path(options.reload)
    if not folder.is_dir():
        print(f"queue-worker: {folder} is no folder to watch", file=sys.stderr)
        return MISUSED
    logging_options = (f"--log-level={options.log_level}", f"--log-format={options.log_format}")
    return Reloader(command_of("run", options.target, *logging_options), folder).run()


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    """The word `run` may be left out, and `--reload` may stand before the target."""
    parser = _parser()
    options = parser.parse_intermixed_args(arguments)
    words = [word for word in options.words if word != "run"]
    if not words and options.reload and ":" in options.reload:
        words, options.reload = [options.reload], "."
    if len(words) != 1:
        parser.error(f"give one MODULE:WORKER, not {' '.join(words) or 'none'}")
    options.target = words[0]
    options.log_level = _chosen(parser, options.log_level, "LOG_LEVEL", LEVELS, LogLevel.INFO)
    options.log_format = _chosen(parser, options.log_format, "LOG_FORMAT", FORMATS, LogFormat.JSON)
    return options


def _chosen(
    parser: argparse.ArgumentParser,
    given: str | None,
    setting: str,
    choices: Sequence[str],
    default: str,
) -> str:
    """What the command says, else the environment."""
    variable = PREFIX + setting
    value = given or (os.environ.get(variable) or default).lower()
    if value not in choices:
        parser.error(f"{variable}: {value!r} must be one of {', '.join(choices)}")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="queue-worker",
        usage="%(prog)s run MODULE:WORKER [options]",
        description="Runs the handlers of a Worker against a queue-operator.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "words",
        nargs="*",
        metavar="run MODULE:WORKER",
        help="where the Worker is; MODULE is looked for in the current directory first",
    )
    parser.add_argument(
        "--reload",
        nargs="?",
        const=".",
        metavar="DIR",
        help="for development: start anew when a Python file in DIR (%(const)s) changes",
    )
    parser.add_argument(
        "--log-level",
        type=str.lower,
        choices=LEVELS,
        help="lowest level to write (info)",
    )
    parser.add_argument(
        "--log-format",
        type=str.lower,
        choices=FORMATS,
        help="one JSON object a line, plain text, or none: logging is what MODULE makes of it "
        "(json)",
    )
    parser.add_argument("--version", action="version", version=__version__)
    return parser


def load(target: str) -> Worker:
    """Imports the worker. Raises TargetError saying which part of the target is wrong."""
    module_name, _, attribute = target.partition(":")
    if module_name.endswith(".py") or "/" in module_name:
        parts = Path(module_name).with_suffix("").parts
        meant = f"{'.'.join(parts).strip('./')}:{attribute or 'worker'}"
        raise TargetError(f"{target!r} names a file; give its module, as in {meant}")
    if not module_name or not attribute:
        raise TargetError(f"{target!r} must be MODULE:WORKER, as in handlers:worker")
    sys.path.insert(0, str(Path.cwd()))
    module = _imported(module_name)
    worker = getattr(module, attribute, None)
    if worker is None:
        named = [f"{module_name}:{n}" for n, v in vars(module).items() if isinstance(v, Worker)]
        has = f"its workers: {', '.join(named)}" if named else "and no other Worker"
        raise TargetError(f"module {module_name!r} has no {attribute!r}; {has}")
    if not isinstance(worker, Worker):
        raise TargetError(f"{target} is {kind_of(worker)}, not a queue_operator Worker")
    if not worker.registry.specs():
        raise TargetError(f"{target} has no handlers; add some with @{attribute}.handler(...)")
    return worker


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as error:
        absent = isinstance(error, ModuleNotFoundError) and error.name
        if absent and f"{name}.".startswith(f"{absent}."):
            raise TargetError(f"there is no module {name!r} in {Path.cwd()} or installed") from None
        kind = type(error).__name__
        raise TargetError(f"module {name!r} cannot be imported: {kind}: {error}") from error


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
