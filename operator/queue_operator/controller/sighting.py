"""One event of the watch, without the object: what is kept of it is small, but for its payload."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from queue_operator.crd.conditions import tells_over_quota
from queue_operator.crd.submission import cancel_requested, check_manifest, read_job
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.job import Job, ResourceRef
from queue_operator.domain.validation import Limits

OVERHEAD_BYTES: Final = 2048
"""What a sighting takes beside its payload: names, tags and the objects that hold them."""


@dataclass(frozen=True, slots=True)
class IntakeRules:
    """How objects become jobs."""

    cluster_uid: str
    limits: Limits
    json_depth: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """`gone` is what the watch says, not necessarily true: leaving the field selector looks the
    same. `leaving`: the object has a deletion timestamp. One that is neither has a `job`, or an
    `error` that says why it cannot have one, or both: it could have one under other settings.
    `observed` is the generation that its status tells of.
    """

    resource: ResourceRef
    namespace: str
    created: str = ""
    gone: bool = False
    leaving: bool = False
    job: Job | None = None
    error: InvalidArgument | None = None
    cancel: bool = False
    observed: int = 0
    told_over_quota: bool = False

    @property
    def uid(self) -> str:
        return self.resource.uid

    @property
    def name(self) -> str:
        return self.resource.name

    @property
    def generation(self) -> int:
        return self.resource.generation

    @property
    def is_present(self) -> bool:
        return not (self.gone or self.leaving)

    @property
    def size(self) -> int:
        return OVERHEAD_BYTES + (len(self.job.payload) if self.job else 0)

    @classmethod
    def of(cls, body: Mapping[str, Any], rules: IntakeRules, *, gone: bool = False) -> "Sighting":
        metadata = body["metadata"]
        generation = metadata.get("generation", 1)
        leaving = "deletionTimestamp" in metadata
        job, error = None, None
        if not (gone or leaving):
            try:
                job = read_job(body, rules.cluster_uid, rules.json_depth)
                check_manifest(job, rules.limits)
            except InvalidArgument as found:
                error = found
        return cls(
            resource=ResourceRef(rules.cluster_uid, metadata["uid"], metadata["name"], generation),
            namespace=metadata["namespace"],
            created=metadata.get("creationTimestamp", ""),
            gone=gone,
            leaving=leaving,
            job=job,
            error=error,
            cancel=cancel_requested(body),
            observed=(body.get("status") or {}).get("observedGeneration") or 0,
            told_over_quota=tells_over_quota(body, generation),
        )
