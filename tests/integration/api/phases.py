"""Jobs of every fate."""

from tests.integration.api.door import Door

from queue_operator.domain.outcome import ErrorCategory, ErrorInfo
from queue_operator.domain.states import Event


async def every_phase(door: Door) -> dict[str, str]:
    """A job in each of the nine lifecycle states, by state."""
    jobs = {"FAILED": await door.failed(ErrorInfo("x", ErrorCategory.PERMANENT))}
    jobs["DEAD_LETTER"] = await door.failed(ErrorInfo("x"))
    done = await door.submitted()
    await door.claimed(done)
    await door.settled(done, Event.COMPLETE)
    retrying = await door.submitted(backoff={"strategy": "CONSTANT", "initial_delay": 3600})
    await door.claimed(retrying)
    await door.settled(retrying, Event.FAIL, ErrorInfo("x"))
    running = await door.submitted()
    await door.claimed(running)
    cancelled = await door.submitted()
    await door.told("POST", f"/v1/jobs/{cancelled}/cancel")
    jobs |= {"COMPLETED": done, "RETRYING": retrying, "RUNNING": running, "CANCELLED": cancelled}
    jobs["DELAYED"] = await door.submitted(delay=3600)
    jobs["PENDING"] = await door.submitted(depends_on=[running])
    jobs["SCHEDULED"] = await door.submitted()
    return jobs
