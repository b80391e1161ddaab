"""What tests give to the harness: made what the queue takes, or refused with what to write."""

import uuid
from dataclasses import replace

from queue_operator.client.requests import Submission
from queue_operator.domain.job import Job
from queue_operator.domain.validation import DEFAULT_LIMITS
from queue_operator.wire.convert import spawn_from_wire
from queue_operator.wire.v1 import worker_pb2 as wire
from queue_operator.worker.spawning import ChildOptions, child_job


def job(type_: str | Submission, payload: object, options: ChildOptions, namespace: str) -> Job:
    """What `ctx.spawn` would submit. Raises InvalidArgument for what is no option, or cannot be
    its value.
    """
    child = child_job(type_, payload, options, DEFAULT_LIMITS.payload_bytes)
    made = spawn_from_wire(wire.Spawn(job=child), namespace=namespace).job
    return replace(made, id=made.id or str(uuid.uuid4()))
