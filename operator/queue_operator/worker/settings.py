"""The settings of a worker process, from `QUEUE_OPERATOR_` environment variables."""

import json
import logging
import os
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, cast

from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.job import DEFAULT_NAMESPACE
from queue_operator.domain.limits import MAX_CAPACITY
from queue_operator.domain.tags import from_map
from queue_operator.domain.validation import DEFAULT_LIMITS, check_tags, check_text
from queue_operator.observing.lines import LogLevel
from queue_operator.worker.errors import InvalidSettings, UnusableToken

logger = logging.getLogger(__name__)

PREFIX = "QUEUE_OPERATOR_"
DEFAULT_METRICS_PORT: Final = 9091
_SIMILAR: Final = 0.8
NOT_CAPTURED: Final = "off"
CAPTURED: Final = (*(level.value for level in LogLevel), NOT_CAPTURED)
_OF_THE_COMMAND: Final = ("LOG_FORMAT", "LOG_LEVEL")
"""What `queue-worker` itself reads."""
_HEADER: Final = re.compile(rb"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")
"""What a header of HTTP can hold."""


def _default_name() -> str:
    return os.environ.get("POD_NAME") or socket.gethostname()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Durations in seconds.

    `server` is host:port. `token_file` is read again on each connect; without one the
    worker sends no credentials. With `ca_file` the connection is TLS; `cert_file` and `key_file`
    are shown to a server that asks for a certificate. All of them are read again on each
    connect. `tags` are demands: this worker takes only jobs that carry all of them.
    `health_port` 0 serves no probes, `metrics_port` 0 no metrics; None is port 9091 where the extra
    `metrics` is installed.
    """

    server: str = "localhost:50051"
    token_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    tags: frozenset[str] = frozenset()
    capacity: int = 10
    namespace: str = DEFAULT_NAMESPACE
    worker_name: str = field(default_factory=_default_name)
    host: str = field(default_factory=socket.gethostname)
    pod_uid: str = ""
    health_port: int = 8081
    metrics_port: int | None = None
    capture_logs: str = LogLevel.INFO
    """Lines of `logging` of this level and above, written while a handler runs, are in the log of
    its job; `off` keeps them out.
    """
    grace_s: float = 25.0
    """After SIGTERM, how long jobs may go on before they are handed back."""
    ack_wait_s: float = 3.0
    """After the grace, how long to wait until the server has stored what was reported."""
    close_s: float = 5.0
    """After the last job, how long dependencies and the lifespan may take to close."""
    process_start_s: float = 30.0
    """How long a handler's process may take to be there, with the worker's script imported."""
    refused_s: float = 30.0
    """How long a refused worker tries again before it exits."""
    connect_timeout_s: float = 10.0
    """How long the server may take to answer the hello."""
    reconnect_initial_s: float = 0.2
    reconnect_max_s: float = 5.0
    """The wait before a reconnect is random, up to a bound that doubles between these."""

    def __post_init__(self) -> None:
        faults = [text for fault in _RULES if (text := fault(self))]
        if faults:
            raise InvalidSettings(faults)

    def token(self) -> str:
        """The bearer token as its file holds it now, "" without a file.

        Raises OSError for a file that cannot be read or holds none (UnusableToken).
        """
        if self.token_file is None:
            return ""
        found = self.token_file.read_bytes().strip()
        if not _HEADER.fullmatch(found):
            raise UnusableToken(self.token_file)
        return found.decode("ascii")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> "WorkerSettings":
        """Reads `os.environ` unless another mapping is given.

        Warns of a variable that looks like one of these and is none. Raises InvalidSettings
        with every variable that is wrong.
        """
        source = os.environ if environment is None else environment
        values: dict[str, Any] = {}
        faults: list[str] = []
        for name, (variables, parse) in _VARIABLES.items():
            variable = next((v for v in variables if source.get(v)), None)
            if variable is None:
                continue
            try:
                values[name] = parse(source[variable])
            except InvalidArgument as error:
                faults.append(f"{variable}: {error.reason}")
            except ValueError:
                faults.append(f"{variable}: {source[variable]!r} is not a number")
        _warn_of_typos(source)
        if faults:
            raise InvalidSettings(faults)
        return cls(**values)


def _tags(text: str) -> frozenset[str]:
    if text.lstrip().startswith(("{", "[")):
        return _tags_of_json(text)
    return frozenset(tag.strip() for tag in text.split(",") if tag.strip())


def _tags_of_json(text: str) -> frozenset[str]:
    try:
        tags = json.loads(text)
    except ValueError:
        tags = None
    texts = list(tags.values()) if isinstance(tags, dict) else tags
    if not isinstance(texts, list) or not all(isinstance(one, str) for one in texts):
        raise InvalidArgument(
            "tags",
            f"{text!r} must be tags separated by commas, as in gpu,region=eu, or a JSON list or "
            "object of texts",
        )
    return from_map(tags) if isinstance(tags, dict) else frozenset(tags)


_VARIABLES: dict[str, tuple[tuple[str, ...], Callable[[str], Any]]] = {
    "server": ((PREFIX + "SERVER",), str),
    "token_file": ((PREFIX + "TOKEN_FILE",), Path),
    "ca_file": ((PREFIX + "CA_FILE",), Path),
    "cert_file": ((PREFIX + "CERT_FILE",), Path),
    "key_file": ((PREFIX + "KEY_FILE",), Path),
    "tags": ((PREFIX + "TAGS",), _tags),
    "capacity": ((PREFIX + "CAPACITY",), int),
    "namespace": ((PREFIX + "NAMESPACE", "POD_NAMESPACE"), str),
    "worker_name": ((PREFIX + "WORKER_NAME", "POD_NAME"), str),
    "host": (("NODE_NAME",), str),
    "pod_uid": (("POD_UID",), str),
    "health_port": ((PREFIX + "HEALTH_PORT",), int),
    "metrics_port": ((PREFIX + "METRICS_PORT",), int),
    "capture_logs": ((PREFIX + "CAPTURE_LOGS",), str.lower),
    "grace_s": ((PREFIX + "GRACE_S",), float),
    "ack_wait_s": ((PREFIX + "ACK_WAIT_S",), float),
    "close_s": ((PREFIX + "CLOSE_S",), float),
    "process_start_s": ((PREFIX + "PROCESS_START_S",), float),
    "refused_s": ((PREFIX + "REFUSED_S",), float),
    "connect_timeout_s": ((PREFIX + "CONNECT_TIMEOUT_S",), float),
    "reconnect_initial_s": ((PREFIX + "RECONNECT_INITIAL_S",), float),
    "reconnect_max_s": ((PREFIX + "RECONNECT_MAX_S",), float),
}


def _warn_of_typos(source: Mapping[str, str]) -> None:
    known = {
        variable.removeprefix(PREFIX): variable
        for variables, _ in _VARIABLES.values()
        for variable in variables
        if variable.startswith(PREFIX)
    } | {name: PREFIX + name for name in _OF_THE_COMMAND}
    for name in sorted(source):
        given = name.removeprefix(PREFIX)
        # Two underscores stand between the levels of the operator's own settings.
        if not name.startswith(PREFIX) or given in known or "__" in given:
            continue
        if close := get_close_matches(given, known, 1, _SIMILAR):
            logger.warning("%s is no setting of a worker; did you mean %s?", name, known[close[0]])


def _server_fault(settings: WorkerSettings) -> str:
    _, colon, port = settings.server.rpartition(":")
    if colon and port.isdigit() and "/" not in settings.server:
        return ""
    return f"{PREFIX}SERVER: {settings.server!r} must be host:port, as in localhost:50051"


def _capacity_fault(settings: WorkerSettings) -> str:
    if _is_whole(settings.capacity) and 1 <= settings.capacity <= MAX_CAPACITY:
        return ""
    return (
        f"{PREFIX}CAPACITY: {settings.capacity!r} must be a whole number from 1 to {MAX_CAPACITY}"
    )


def _port_fault(settings: WorkerSettings) -> str:
    wrong = [
        f"{PREFIX}{name}: {port!r} must be from 0 (off) to 65535"
        for name, port in (
            ("HEALTH_PORT", settings.health_port),
            ("METRICS_PORT", 0 if settings.metrics_port is None else settings.metrics_port),
        )
        if not (_is_whole(port) and 0 <= port <= 65_535)
    ]
    return "; ".join(wrong)


def _capture_fault(settings: WorkerSettings) -> str:
    if settings.capture_logs in CAPTURED:
        return ""
    return f"{PREFIX}CAPTURE_LOGS: {settings.capture_logs!r} must be one of {', '.join(CAPTURED)}"


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _certificate_fault(settings: WorkerSettings) -> str:
    pair = (settings.cert_file, settings.key_file)
    if pair == (None, None) or (None not in pair and settings.ca_file is not None):
        return ""
    return f"{PREFIX}CERT_FILE, {PREFIX}KEY_FILE: give both, and {PREFIX}CA_FILE, or none"


def _text_fault(settings: WorkerSettings) -> str:
    """Bytes of the environment that are no text would end every session."""
    for name, (variables, _) in _VARIABLES.items():
        value = getattr(settings, name)
        if isinstance(value, str) and value:
            try:
                check_text(" or ".join(variables), value, DEFAULT_LIMITS.id_characters)
            except InvalidArgument as error:
                return str(error)
    return ""


def _tags_fault(settings: WorkerSettings) -> str:
    try:
        check_tags(f"{PREFIX}TAGS", settings.tags)
    except InvalidArgument as error:
        return str(error)
    return ""


def _duration_fault(settings: WorkerSettings) -> str:
    wrong = [
        PREFIX + name.upper()
        for name in (
            "grace_s",
            "ack_wait_s",
            "close_s",
            "process_start_s",
            "refused_s",
            "connect_timeout_s",
            "reconnect_initial_s",
            "reconnect_max_s",
        )
        if not _is_length(getattr(settings, name))
    ]
    return f"{', '.join(wrong)}: must be 0 or more seconds" if wrong else ""


def _is_length(value: object) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 <= cast(float, value) < float("inf")


_RULES = (
    _text_fault,
    _server_fault,
    _certificate_fault,
    _capacity_fault,
    _port_fault,
    _capture_fault,
    _tags_fault,
    _duration_fault,
)
