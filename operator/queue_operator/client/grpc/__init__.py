"""The queue of another process, over gRPC: the same calls, the same errors, the same streams.

>>> async with GrpcQueue("queue-operator:50051", token=file_token("/var/run/token")) as queue:
...     await queue.enqueue_job(Job(id="welcome-4711", type="send-email", payload=b"..."))
"""

from queue_operator.backends.forks import WrongProcess
from queue_operator.client.grpc.jobs import job_of
from queue_operator.client.grpc.queue import GrpcQueue
from queue_operator.client.grpc.retrying import Repeats
from queue_operator.client.grpc.stream import GrpcStream
from queue_operator.client.grpc.watching import GrpcEvents
from queue_operator.wire.tls import ClientTls

__all__ = [
    "ClientTls",
    "GrpcEvents",
    "GrpcQueue",
    "GrpcStream",
    "Repeats",
    "WrongProcess",
    "job_of",
]
