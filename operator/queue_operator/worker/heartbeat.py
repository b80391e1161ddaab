"""The beat that keeps the leases of what a worker holds."""

import asyncio

from queue_operator.worker.session import Session


async def beat(session: Session) -> None:
    """Asks for a heartbeat every interval that the server gave, until cancelled. The session
    sends none while it holds nothing: HTTP/2 keepalive proves an idle worker alive.
    """
    while True:
        await asyncio.sleep(session.heartbeat_interval_s)
        session.heartbeat()
