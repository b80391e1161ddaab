"""Receivers of messages that also write what they are told."""

import asyncio
import os
from pathlib import Path

from tests.chaos.programs.parent import end_with_parent
from tests.integration.webhooks.programs.receivers import main

if __name__ == "__main__":
    end_with_parent(int(os.environ["CHAOS_PARENT"]))
    asyncio.run(main(int(os.environ["CHAOS_PORT"]), Path(os.environ["CHAOS_LOG"])))
