"""How the custom resources are called."""

from dataclasses import dataclass
from typing import Final

GROUP: Final = "queueoperator.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
CATEGORY: Final = "queue"
FIELD_MANAGER: Final = "queue-operator"
TRACEPARENT: Final = f"{GROUP}/traceparent"
TRACESTATE: Final = f"{GROUP}/tracestate"
"""Annotations of a QueueJob: the span of whoever makes it, as W3C Trace Context writes it."""


@dataclass(frozen=True, slots=True)
class ResourceNames:
    """The spellings of one kind."""

    kind: str
    plural: str
    singular: str
    short: str

    @property
    def crd(self) -> str:
        return f"{self.plural}.{GROUP}"


QUEUE_JOB: Final = ResourceNames("QueueJob", "queuejobs", "queuejob", "qj")
QUEUE_WORKER: Final = ResourceNames("QueueWorker", "queueworkers", "queueworker", "qw")

UNFINISHED_SELECTOR: Final = "status.finished!=true"
"""Field selector of the QueueJobs that still matter; an absent field counts as not true."""
FINISHED_SELECTOR: Final = "status.finished=true"
