"""What signs the messages of each namespace: files in a folder, read again when they change."""

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
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

    Raises InvalidArgument when the folder or a file of it cannot be used at the start. Later such
    a change is logged, and the secrets stay as they were. Without a folder nobody has any.
    """

    def __init__(
        self, folder: Path | None, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder = folder
        self._monotonic = monotonic
        self._looked_at = monotonic()
        self._faults: set[str] = set()
        self._stamps: Mapping[str, _Stamp] = {}
        self._secrets: dict[str, _Signing] = {}
        if folder is not None:
            self._stamps = _stamps(folder)
            self._secrets = {name: _read(folder / name) for name in self._stamps}

    def of(self, namespace: str) -> tuple[Secret, ...]:
        """The newest first, as the files are now or were a second ago."""
        now = self._monotonic()
        if self._folder is not None and now - self._looked_at >= LOOK_EVERY_S:
            self._looked_at = now
            self._renew(self._folder)
        return self._secrets.get(namespace, ())

    def _renew(self, folder: Path) -> None:
        try:
            stamps = _stamps(folder)
        except InvalidArgument as error:
            self._tell({str(error)})
            return
        kept: dict[str, _Signing] = {}
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
                kept[name] = self._secrets.get(name, ())
            else:
                log.info("the secrets of webhooks of %s were read again", name)
        self._stamps, self._secrets = stamps, kept
        self._tell(faults)

    def _tell(self, faults: set[str]) -> None:
        """Each once, and not each second."""
        for fault in sorted(faults - self._faults):
            log.error("secrets of webhooks stay as they were: %s", fault)
        self._faults = faults


def _stamps(folder: Path) -> dict[str, _Stamp]:
    """By name of file; of each, what changes when it is written anew or replaced."""
    try:
        files = [file for file in folder.iterdir() if not file.name.startswith(".")]
        stats = {file.name: file.stat() for file in files if file.is_file()}
    except OSError as error:
        raise InvalidArgument(SETTING, f"{folder}: {error.strerror}") from error
    return {name: (one.st_mtime_ns, one.st_ino, one.st_size) for name, one in stats.items()}


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
