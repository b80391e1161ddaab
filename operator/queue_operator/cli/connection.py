"""Which server a command talks to, as whom, and what it says when that fails."""

import asyncio
import functools
import json
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import IO, Any, Final, TypeVar

import click
import httpx
from click.core import ParameterSource

from queue_operator.cli import rendering
from queue_operator.cli.rendering import plain
from queue_operator.client import AsyncQueueClient, QueueClient, RetryPolicy, file_token
from queue_operator.client.credentials import Token
from queue_operator.client.environment import CertificateFiles
from queue_operator.domain.errors import (
    Fault,
    Forbidden,
    InvalidArgument,
    InvalidTransition,
    JobNotFound,
    KeyConflict,
    MessageNotFound,
    QueueError,
    QuotaExceeded,
    Unauthenticated,
    Unavailable,
)

T = TypeVar("T")

DEFAULT_URL: Final = "http://localhost:8080"

ANSWER_S: Final = 30.0
BULK_ANSWER_S: Final = 300.0
"""How long a request for 10,000 jobs may take."""

HINTS: Final[dict[type[QueueError], str]] = {
    Unavailable: "is the server running, and the URL right? Give --url or set QUEUE_OPERATOR_URL; "
    "in a cluster: kubectl -n queue-operator port-forward service/queue-operator 8080",
    Unauthenticated: "give --token-file or --token, or set QUEUE_OPERATOR_TOKEN; in a cluster: "
    "kubectl create token NAME --audience queue-operator",
    Forbidden: "ask whoever runs the cluster for a Role with that verb on "
    "queuejobs.queueoperator.dev, or whoever keeps the file of tokens for the scope that is "
    "missing, or give another --namespace",
    JobNotFound: "is --namespace right? `queue-operator list` shows the jobs that are there",
    MessageNotFound: "is --namespace right? `queue-operator webhooks list` shows the messages that "
    "are there; what was delivered is kept for a while only",
    KeyConflict: "give another --key, or repeat the submission exactly as it was",
    InvalidTransition: "`queue-operator get` shows its state, `queue-operator why` what holds it",
}
"""What to do next, by error."""
STORE_AWAY: Final = (
    "the server answers, so the URL is right, but its job store or the cluster does not: "
    "try again later, and tell whoever runs the server, whose log has the cause"
)
_PARAMETERS: Final = {
    "url": "--url",
    "ca_file": "--ca-file",
    "certificate_file": "--cert-file",
    "key_file": "--key-file",
}
"""Options by the argument of the client."""
PATIENCE_S: Final = 2.0
"""Waiting for longer is told, so that nobody wonders."""


class Refused(click.ClickException):
    """The server said no, or nothing. `told` is what programs are given besides."""

    def __init__(
        self,
        message: str,
        code: str,
        hint: str,
        output: str,
        *,
        told: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self._code, self._hint, self._output = code, hint, output
        self._told = {"request_id": None} if told is None else told

    def show(self, file: IO[Any] | None = None) -> None:
        if self._output != "table":
            told = {"code": self._code, "message": self.message, "hint": self._hint}
            click.echo(json.dumps({"error": {**told, **self._told}}), file=file, err=True)
            return
        click.echo(f"error: {plain(self.message)}", file=file, err=True)
        if self._hint:
            click.echo(f"  {plain(self._hint)}", file=file, err=True)


class NotEnded(Refused):
    """A wait was given up, and nobody knows yet how the job ends."""

    exit_code = 3


INTERRUPTED: Final = 130
"""The exit code after Ctrl-C of a command whose others say how a job ended."""


SYSTEM: Final = CertificateFiles()
"""The authorities that the system believes, and nothing to show."""


@dataclass(frozen=True, slots=True)
class Remote:
    """The server, the caller, and how to print."""

    url: str
    token: Token
    namespace: str | None
    output: str
    files: CertificateFiles = SYSTEM

    @contextmanager
    def connected(
        self,
        retry: RetryPolicy | None = None,
        timeout_s: float = ANSWER_S,
        sleep: Callable[[float], None] = time.sleep,
    ) -> Iterator[QueueClient]:
        """A client; its errors end the command. Unless `retry` says how, it tells once that it
        tries again for long.
        """
        with (
            self._telling(),
            QueueClient(
                self.url,
                self.token,
                retry=retry or self._patient(),
                timeout_s=timeout_s,
                sleep=sleep,
                ca_file=self.files.ca_file,
                certificate_file=self.files.certificate_file,
                key_file=self.files.key_file,
            ) as queue,
        ):
            yield queue

    def run(self, work: Callable[[AsyncQueueClient], Awaitable[T]]) -> T:
        """What `work` gives, which asks for several things at once; errors end the command."""

        async def connected() -> T:
            async with AsyncQueueClient(
                self.url,
                self.token,
                retry=self._patient(),
                timeout_s=ANSWER_S,
                ca_file=self.files.ca_file,
                certificate_file=self.files.certificate_file,
                key_file=self.files.key_file,
            ) as queue:
                return await work(queue)

        with self._telling():
            return asyncio.run(connected())

    def _patient(self) -> RetryPolicy:
        return RetryPolicy(on_pause=Patience(self.output).tell)

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            with _warnings():
                yield
        except InvalidArgument as error:
            if error.field in _PARAMETERS:
                hint = _PARAMETERS[error.field]
                raise click.BadParameter(error.reason, param_hint=hint) from error
            raise self.refused(error) from error
        except QueueError as error:
            raise self.refused(error) from error
        except TimeoutError as error:
            raise self.not_ended(str(error)) from error
        except OSError as error:
            if error.filename is None:
                raise
            text = f"{error.filename}: {error.strerror}"
            raise Refused(text, "UNREADABLE", "", self.output) from error

    def not_ended(self, message: str) -> NotEnded:
        """What ends a command whose time is over."""
        return NotEnded(message, "TIMEOUT", "", self.output)

    def refused(self, error: QueueError) -> Refused:
        """`error` with what to do next."""
        kind = next((kind for kind in HINTS if isinstance(error, kind)), None)
        hint = HINTS[kind] if kind else ""
        if isinstance(error, JobNotFound) and error.findings:
            hint = ""
        if isinstance(error, QuotaExceeded) and error.retry_after_s is not None:
            hint = f"try again in {error.retry_after_s:g} s, or ask for a larger quota"
        text = str(error)
        if kind is Unavailable:
            text += f" [{self.url}]"
            if error.request_id:
                hint = STORE_AWAY
                text += f" (request {error.request_id})"
        return Refused(text, error.code, hint, self.output, told=_told(error))


class _Notes(logging.Handler):
    """Warnings of the client, as a command tells them."""

    def emit(self, record: logging.LogRecord) -> None:
        rendering.note(f"warning: {plain(record.getMessage())}")


@contextmanager
def _warnings() -> Iterator[None]:
    told = logging.getLogger(QueueClient.__module__.rpartition(".")[0])
    notes = _Notes(logging.WARNING)
    told.addHandler(notes)
    try:
        yield
    finally:
        told.removeHandler(notes)


class Patience:
    """Says once that a server is asked again, when that has gone on for `PATIENCE_S`."""

    def __init__(self, output: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._began = clock, clock()
        self._is_told = output != "table"

    def tell(self, pause_s: float, response: httpx.Response | None) -> None:
        """Of the pause that comes, after this answer."""
        if self._is_told or self._clock() + pause_s - self._began < PATIENCE_S:
            return
        self._is_told = True
        what = "cannot be reached" if response is None else "cannot do it now"
        rendering.note(f"the server {what}; trying again …")


def _told(error: QueueError) -> dict[str, Any]:
    """What the server said besides, as its API has it; what is not there is left out."""
    told: dict[str, Any] = {"request_id": error.request_id or None}
    if error.findings:
        told["details"] = [_fault(fault) for fault in error.findings]
    if isinstance(error, QuotaExceeded):
        told["quota"] = {
            "limit": error.limit,
            "current": error.current,
            "maximum": error.maximum,
            "retry_after_s": error.retry_after_s,
        }
    return told


def _fault(fault: Fault) -> dict[str, Any]:
    told = asdict(fault)
    if not fault.job_id:
        del told["job_id"]
    return told


def answerable() -> bool:
    """Whether somebody is there to answer a question."""
    return sys.stdin.isatty()


def confirm(question: str, otherwise: str) -> None:
    """Asks, and ends the command at a no. Raises UsageError where nobody can answer."""
    if not answerable():
        raise click.UsageError(otherwise)
    click.confirm(question, abort=True, err=True)


def remote(*outputs: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Gives a command a Remote, from options that all commands have alike; `outputs` are ways
    to print that only this one knows.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def command(
            *args: Any,
            url: str,
            token: str | None,
            token_file: str | None,
            ca_file: str | None,
            cert_file: str | None,
            key_file: str | None,
            namespace: str | None,
            output: str,
            **options: Any,
        ) -> Any:
            files = CertificateFiles(ca_file=ca_file, certificate_file=cert_file, key_file=key_file)
            given = Remote(url, _token(token, token_file), namespace, output, files)
            return function(given, *args, **options)

        for option in reversed(_options(outputs)):
            command = option(command)
        return command

    return decorate


def _token(token: str | None, token_file: str | None) -> Token:
    """The one that was given; what is typed wins over what the environment holds."""
    if token is None or token_file is None:
        return token if token_file is None else file_token(token_file)
    context = click.get_current_context()
    typed = {
        name
        for name in ("token", "token_file")
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    if len(typed) == 2:
        raise click.UsageError("give --token or --token-file, not both")
    return token if typed == {"token"} else file_token(token_file)


_FILES: Final = (
    ("ca-file", "PEM file with the authorities to believe.  [default: those of the system]"),
    ("cert-file", "PEM file to show to a server that asks for a certificate."),
    ("key-file", "PEM file with the key of --cert-file."),
)


def _file(name: str, text: str) -> Callable[[Any], Any]:
    return click.option(
        f"--{name}",
        envvar=f"QUEUE_OPERATOR_{name.upper().replace('-', '_')}",
        show_envvar=True,
        type=click.Path(dir_okay=False),
        help=text,
    )


def _options(outputs: tuple[str, ...]) -> list[Callable[[Any], Any]]:
    return [
        click.option(
            "--url",
            envvar="QUEUE_OPERATOR_URL",
            default=DEFAULT_URL,
            show_default=True,
            show_envvar=True,
            help="Address of the REST port.",
        ),
        click.option(
            "--token",
            envvar="QUEUE_OPERATOR_TOKEN",
            show_envvar=True,
            help="Bearer token. Better in the variable: a command line can be seen by others.",
        ),
        click.option(
            "--token-file",
            envvar="QUEUE_OPERATOR_TOKEN_FILE",
            show_envvar=True,
            type=click.Path(dir_okay=False),
            help="File that holds the token.",
        ),
        *(_file(*option) for option in _FILES),
        click.option(
            "-n",
            "--namespace",
            envvar="QUEUE_OPERATOR_NAMESPACE",
            show_envvar=True,
            help="Namespace of the jobs.  [default: the token's own]",
        ),
        click.option(
            "-o",
            "--output",
            type=click.Choice(["table", "json", *outputs]),
            default="table",
            show_default=True,
            help="How to print.",
        ),
    ]
