"""What a task store refuses, beside InvalidArgument, PayloadTooLarge and Unavailable.

InvalidArgument
├── DuplicateTask       the id is taken
├── TaskNotFound        no such task
└── NotConnected        used before `connect` or after `close`
InvalidTransition
└── NotInProgress       only a reserved task can end, and only once

Each has the `field` that it is about.
"""

from queue_operator.domain.errors import InvalidArgument, InvalidTransition, QueueError


class DuplicateTask(InvalidArgument):
    """A task with this id is stored already, whatever became of it."""

    code = "DUPLICATE"

    def __init__(self, task_id: str) -> None:
        super().__init__("task_id", f"{task_id!r} exists already")
        self.task_id = task_id


class TaskNotFound(InvalidArgument):
    """An outcome was reported for a task that was never enqueued."""

    code = "NOT_FOUND"

    def __init__(self, task_id: str) -> None:
        super().__init__("task_id", f"{task_id!r} does not exist")
        self.task_id = task_id


class NotInProgress(InvalidTransition):
    """An outcome was reported for a task that nobody reserved, or that has ended."""

    field = "task_id"

    def __init__(self, task_id: str, status: str, call: str) -> None:
        super().__init__(task_id, status, call)
        # The parent speaks of jobs, which these are not.
        QueueError.__init__(
            self, f"task_id: {task_id!r} is {status}, and {call} is for tasks in progress"
        )
        self.task_id = task_id
        self.status = status


class NotConnected(InvalidArgument):
    """The store is used outside of `connect` … `close`."""

    code = "NOT_CONNECTED"

    def __init__(self) -> None:
        super().__init__("backend", "is not connected: await connect() before using it")
