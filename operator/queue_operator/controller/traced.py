"""The spans that jobs of resources belong to."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from queue_operator.domain.job import Job
from queue_operator.domain.traces import Trace
from queue_operator.tracing.off import OFF
from queue_operator.tracing.protocol import Beginning, Tracing


class TakingIn:
    """Jobs of resources, by uid, on their way to the store. Each is a submission of its own, unless
    it was stored before.
    """

    def __init__(self, tracing: Tracing, jobs: Mapping[str, Job]) -> None:
        self._sending: dict[str, Beginning] = {}
        self.jobs = list(jobs.values())
        if tracing is not OFF:
            self.jobs = [self._begin(tracing, uid, job) for uid, job in jobs.items()]

    def _begin(self, tracing: Tracing, uid: str, job: Job) -> Job:
        sending = tracing.beginning("resource", Trace(job.traceparent, job.tracestate))
        sending.about([job])
        self._sending[uid] = sending
        trace = sending.trace()
        return replace(job, traceparent=trace.parent, tracestate=trace.state)

    def stored(self, uids: Collection[str]) -> None:
        """Those that were new."""
        for uid in uids:
            if uid in self._sending:
                self._sending[uid].stored()
