"""What signs the messages of each namespace: files in a folder, read again when they change."""

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from stat import S_ISREG
from typing import Final

from queue_operator.domain.errors import InvalidArgument
from queue_operator.webhooks.signing import Secret

log = logging.getLogger(__name__)

SETTING: Final = "webhooks.secrets_dir"
LOOK_EVERY_S: Final = 1.0
"""How often it is looked whether a file has changed."""
MOST: Final = 8
"""Secrets of one namespace: each signs, and receivers read all signatures."""
_MOST_BYTES: Final = 16_384

_Stamp = tuple[int, int, int] | None
"""None of what could not be read."""
_Signing = tuple[Secret, ...]


class Secrets:
    """By namespace, which is the name of its file: a secret a line, the newest first. Files whose
    names begin with a dot are none, so that the folder may be a mounted Secret.

    Raises InvalidArgument when the folder cannot be read at the start. Later that is logged, and
    so is a file that cannot be used: its secrets stay as they were. Without a folder nobody has
    any.
    """

    def __init__(
        self, folder: Path | None, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder = folder
        self._monotonic = monotonic
        self._looked_at = monotonic()
        self._faults: set[str] = set()
        self._stamps: Mapping[str, _Stamp] = {}
        self._secrets: dict[str, _Signing | InvalidArgument] = {}
        if folder is not None:
            self._read_changed(folder, _stamps(folder))

    def of(self, namespace: str) -> tuple[Secret, ...]:
        """The newest first, as the files are now or were a second ago. Raises InvalidArgument where
        a file is there and could never be used: what it should sign is not sent unsigned.
        """
        now = self._monotonic()
        if self._folder is not None and now - self._looked_at >= LOOK_EVERY_S:
            self._looked_at = now
            self._renew(self._folder)
        found = self._secrets.get(namespace, ())
        if isinstance(found, InvalidArgument):
            raise InvalidArgument(found.field, found.reason)
        return found

    def _renew(self, folder: Path) -> None:
        try:
            stamps = _stamps(folder)
        except InvalidArgument as error:
            self._tell({str(error)})
            return
        self._read_changed(folder, stamps)

    def _read_changed(self, folder: Path, stamps: dict[str, _Stamp]) -> None:
        kept: dict[str, _Signing | InvalidArgument] = {}
        faults = set[str]()
        for name in stamps:
            if stamps[name] is not None and stamps[name] == self._stamps.get(name):
                kept[name] = self._secrets[name]
                continue
            try:
                kept[name] = _read(folder / name)
            except InvalidArgument as error:
                # It may be readable again without having changed, and is looked at each time.
                stamps[name] = None
                faults.add(str(error))
                before = self._secrets.get(name, error)
                kept[name] = error if isinstance(before, InvalidArgument) else before
            else:
                log.info("the secrets of webhooks of %s were read", name)
        self._stamps, self._secrets = stamps, kept
        self._tell(faults)

    def _tell(self, faults: set[str]) -> None:
        """Each once, and not each second."""
        for fault in sorted(faults - self._faults):
            log.error("secrets of webhooks stay as they were, or are none: %s", fault)
        self._faults = faults


def _stamps(folder: Path) -> dict[str, _Stamp]:
    """By name of file; of each, what changes when it is written anew or replaced."""
    stamps: dict[str, _Stamp] = {}
    try:
        files = [file for file in folder.iterdir() if not file.name.startswith(".")]
    except OSError as error:
        raise InvalidArgument(SETTING, f"{folder}: {error.strerror}") from error
    for file in files:
        try:
            one = file.stat()
        except FileNotFoundError:  # it went away meanwhile
            continue
        except OSError:
            stamps[file.name] = None
            continue
        if S_ISREG(one.st_mode):
            stamps[file.name] = (one.st_mtime_ns, one.st_ino, one.st_size)
    return stamps


def _read(file: Path) -> _Signing:
    """Raises InvalidArgument, which quotes nothing of the file."""
    try:
        with file.open("rb") as opened:
            content = opened.read(_MOST_BYTES + 1)
        lines = content.decode("ascii").split()
    except OSError as error:
        raise InvalidArgument(SETTING, f"{file}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise InvalidArgument(SETTING, f"{file} is no text of secrets") from None
    if not lines or len(lines) > MOST or len(content) > _MOST_BYTES:
        raise InvalidArgument(SETTING, f"{file} must have 1 to {MOST} secrets, one a line")
    secrets: list[Secret] = []
    for number, line in enumerate(lines, 1):
        try:
            secrets.append(Secret.of(line))
        except ValueError as error:
            raise InvalidArgument(SETTING, f"{file}: secret {number} {error}") from None
    return tuple(secrets)
