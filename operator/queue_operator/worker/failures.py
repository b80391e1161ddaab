"""Why there is no session with the server, in words for whoever runs the worker."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc
from grpc import aio

from queue_operator.wire import listener
from queue_operator.wire.status import explained
from queue_operator.worker.errors import UnusableToken
from queue_operator.worker.settings import PREFIX, WorkerSettings

FIRST_PAUSE_S: Final = 10.0
LAST_PAUSE_S: Final = 300.0

_FILES: Final = ("token_file", "ca_file", "cert_file", "key_file")
_ADVICE: Final[Mapping[grpc.StatusCode, str]] = {
    grpc.StatusCode.PERMISSION_DENIED: "check what the token's account may do in the namespace",
    grpc.StatusCode.INVALID_ARGUMENT: "the worker's own settings or handlers are at fault",
}
_REST_ADVICE: Final = "send 'Authorization: Bearer TOKEN' with"


@dataclass(frozen=True, slots=True)
class Failure:
    """`refused` says that something is wrong with this worker, and not with the server or the
    network; `hopeless`, that trying again as the same worker changes nothing.
    """

    text: str
    refused: bool = False
    hopeless: bool = False


async def failure_of(error: Exception, settings: WorkerSettings, *, at_start: bool) -> Failure:
    """`at_start`: there has been no session yet, so that the address may be wrong."""
    code = code_of(error)
    if isinstance(error, OSError) and not isinstance(error, ConnectionError | TimeoutError):
        return Failure(_file_fault(error, settings), refused=True)
    text = _text(error)
    if code is grpc.StatusCode.UNAUTHENTICATED:
        return Failure(f"{text.replace(_REST_ADVICE, 'it takes')}; {_token_advice(settings)}", True)
    if code is not None and code in _ADVICE:
        return Failure(
            f"{text}; {_ADVICE[code]}", True, hopeless=code is grpc.StatusCode.INVALID_ARGUMENT
        )
    if not at_start:
        return Failure(text)
    return Failure(f"{await listener.named(settings.server, text)}; check {PREFIX}SERVER")


def code_of(error: Exception) -> grpc.StatusCode | None:
    """None where the failure is not gRPC's."""
    return error.code() if isinstance(error, aio.AioRpcError) else None


def _text(error: Exception) -> str:
    if isinstance(error, aio.AioRpcError):
        return explained(error.code(), error.details() or "")
    return str(error) or "the server did not answer the hello in time"


def _token_advice(settings: WorkerSettings) -> str:
    if settings.token_file is None:
        return f"set {PREFIX}TOKEN_FILE to a file that holds the token"
    return f"check the token in {settings.token_file} ({PREFIX}TOKEN_FILE)"


def _file_fault(error: OSError, settings: WorkerSettings) -> str:
    file = error.file if isinstance(error, UnusableToken) else Path(str(error.filename))
    named = [PREFIX + name.upper() for name in _FILES if getattr(settings, name) == file]
    told = named or [PREFIX + name.upper() for name in _FILES if getattr(settings, name)]
    return f"{' or '.join(told)}: {error}"


class Repetition:
    """Thins out what is said again and again: the pauses double."""

    def __init__(self) -> None:
        self._kind: object = None
        self._due_s = 0.0
        self._pause_s = FIRST_PAUSE_S
        self._count = 0

    def tell(self, kind: object, now_s: float) -> int | None:
        """None to keep silent now, else how many times that was done since the last time."""
        if kind == self._kind and now_s < self._due_s:
            self._count += 1
            return None
        if kind == self._kind:
            self._pause_s = min(self._pause_s * 2, LAST_PAUSE_S)
        else:
            self._kind, self._pause_s, self._count = kind, FIRST_PAUSE_S, 0
        self._due_s = now_s + self._pause_s
        count, self._count = self._count, 0
        return count

    def forget(self) -> None:
        """It has passed: the next one is news."""
        self._kind = None
