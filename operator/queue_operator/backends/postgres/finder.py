"""Searches: which jobs match, page by page."""

from queue_operator.backends.postgres.connection import Pool
from queue_operator.backends.postgres.lanes import Lanes
from queue_operator.backends.postgres.reading import Reader
from queue_operator.backends.protocol import FailurePage, FailureSearch, JobPage, JobSearch


class Finder:
    """Job and failure searches."""

    def __init__(self, pool: Pool, lanes: Lanes, reader: Reader) -> None:
        self._pool = pool
        self._lanes = lanes
        self._reader = reader

    async def search(self, search: JobSearch) -> JobPage:
        raise NotImplementedError

    async def search_failures(self, search: FailureSearch) -> FailurePage:
        raise NotImplementedError
