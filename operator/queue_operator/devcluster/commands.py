"""Runs programs to their end; a failure carries their output."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from queue_operator.devcluster.errors import CommandFailed, ToolMissing

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def run(
    command: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
) -> str:
    """The standard output of a program, decoded; `env` adds to this process's environment.

    Raises:
        CommandFailed: the status was not zero.
        ToolMissing: there is no such program.

    """
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words,
            cwd=cwd,
            env=_environment(env or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except FileNotFoundError as error:
        raise ToolMissing(words[0], "install it and make sure that it is on PATH") from error
    if done.returncode != 0:
        raise CommandFailed(words, done.returncode, done.stderr + done.stdout)
    return done.stdout


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    # An ordinary PATH, which root has after a plain `su`, lacks where Debian keeps debootstrap
    # and what dpkg asks for.
    path = f"{os.environ.get('PATH', os.defpath)}:{SYSTEM_PATH}"
    return {**os.environ, "PATH": path, **more}


def succeeds(command: Sequence[str | Path], *, timeout_s: float | None = None) -> bool:
    """Whether a program exists and ends with status zero in time."""
    try:
        run(command, timeout_s=timeout_s)
    except (CommandFailed, ToolMissing, subprocess.TimeoutExpired):
        return False
    return True
