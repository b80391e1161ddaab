"""Jobs of any number of namespaces, by their names."""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Collection, Sequence

from queue_operator.domain.job import Job
from queue_operator.domain.validation import check_pairs

Name = tuple[str, str]
"""A namespace and an id."""


class NamedJobs(ABC):
    """The part of Lookup that asks by name. A store for which each call is a journey has a better
    `_named_jobs`.
    """

    async def named_jobs(self, names: Collection[Name]) -> dict[Name, Job]:
        check_pairs("names", names)
        return await self._named_jobs(list(names)) if names else {}

    async def _named_jobs(self, names: Sequence[Name]) -> dict[Name, Job]:
        ids: dict[str, list[str]] = defaultdict(list)
        for namespace, job_id in names:
            ids[namespace].append(job_id)
        return {
            (namespace, job.id): job
            for namespace, wanted in ids.items()
            for job in (await self.look_up(wanted, namespace=namespace)).values()
        }

    @abstractmethod
    async def look_up(self, job_ids: Collection[str], *, namespace: str) -> dict[str, Job]: ...
