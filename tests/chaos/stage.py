"""What a chaos run plays on: a troupe, and an API server."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from tests.chaos.apiserver import ApiServer, api_server
from tests.chaos.doors import NAMESPACE
from tests.chaos.troupe import START_S, Troupe, served

from queue_operator.devcluster import ClusterInfo, Postgres


class Stage(Troupe):
    """Everything that can be struck, and how."""

    def __init__(self, folder: Path, postgres: Postgres, api: ApiServer) -> None:
        super().__init__(folder, postgres)
        self.api = api

    def heal(self) -> None:
        self.api.heal()
        super().heal()


@asynccontextmanager
async def staged(folder: Path, cluster: ClusterInfo) -> AsyncIterator[Stage]:
    """A whole stage, up and running; nothing of it is left afterwards but its logs."""
    async with AsyncExitStack() as stack:
        api = stack.enter_context(api_server(cluster, folder))
        postgres = await stack.enter_async_context(served(folder))
        stage = Stage(folder, postgres, api)
        stack.callback(stage.kill_all)
        for line in stage.lines:
            await stack.enter_async_context(line)
        settings = {
            "CONTROLLER__NAMESPACES": json.dumps([NAMESPACE]),
            # What a lost event told of is found in time.
            "CONTROLLER__RESYNC_S": "3",
        }
        stage.make_programs(settings, outside={"KUBECONFIG": str(api.kubeconfig)})
        await stage.start()
        up = await stage.until(lambda: all(one.watches() for one in stage.operators), START_S)
        assert up, f"the operators do not watch; see {stage.folder}"
        yield stage
