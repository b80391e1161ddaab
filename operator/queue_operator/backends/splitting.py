"""Jobs of callers who have nothing to do with each other, stored together."""

from collections.abc import Awaitable, Callable, Sequence

from queue_operator.domain.errors import QueueError
from queue_operator.domain.job import Job, Submitted

Store = Callable[[Sequence[Job]], Awaitable[Sequence[Submitted]]]


async def store_apart(store: Store, jobs: Sequence[Job]) -> Sequence[Submitted | Exception]:
    """The answer for each job. An error that a second try may not meet is told to all. Any other is
    the fault of one of them: they are halved until it stands alone.
    """
    try:
        return await store(jobs)
    except Exception as error:
        if len(jobs) == 1 or (isinstance(error, QueueError) and error.retryable):
            return [error] * len(jobs)
    middle = len(jobs) // 2
    first = await store_apart(store, jobs[:middle])
    return [*first, *await store_apart(store, jobs[middle:])]
