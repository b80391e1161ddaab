"""Failures of the development cluster, each saying what to do next.

DevClusterError
├── ToolMissing          a program that cannot be fetched is not installed
├── CommandFailed        a program ended with a non-zero status
├── NotReady             a part did not come up in time
├── NotOurs              what is there was made by somebody else, and is left alone
└── ClusterNotFound      no cluster of that name has a state folder
"""

from __future__ import annotations

from collections.abc import Sequence


class DevClusterError(Exception):
    """Base of every failure that this package raises on purpose."""


class ToolMissing(DevClusterError):
    """A program is missing and cannot be installed without the user."""

    def __init__(self, tool: str, hint: str) -> None:
        super().__init__(f"{tool} is not installed: {hint}")
        self.tool = tool


class CommandFailed(DevClusterError):
    """A program ended with a non-zero status; carries the tail of its output."""

    def __init__(self, command: Sequence[str], status: int, output: str) -> None:
        tail = "\n".join(output.strip().splitlines()[-15:])
        super().__init__(f"`{' '.join(command)}` ended with status {status}:\n{tail}")
        self.command = tuple(command)
        self.status = status
        self.output = output


class NotReady(DevClusterError):
    """A condition did not become true before its deadline."""


class NotOurs(DevClusterError):
    """Something of that name is there and nothing says that it was made here."""


class ClusterNotFound(DevClusterError):
    """No cluster of this name was started by this user."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"no development cluster named {name!r}: start it with "
            f"`queue-operator dev up --name {name}`"
        )
        self.name = name
