"""`queue-operator workers`."""

from collections.abc import Iterable

import click
from rich.text import Text

from queue_operator.cli import rendering
from queue_operator.cli.command import ExampleCommand
from queue_operator.cli.connection import Remote, remote
from queue_operator.client import LostWorker, Worker


@click.command(
    cls=ExampleCommand,
    examples=(
        "queue-operator workers",
        "queue-operator workers --type send-email --namespace shop",
        "queue-operator workers -o json | jq '.workers[] | select(.draining)'",
    ),
)
@click.option("-t", "--type", "kind", help="Only those that handle jobs of this type.")
@remote()
def workers(remote: Remote, kind: str | None) -> None:
    """List the workers: what each handles, the tags it demands, its slots, and whether it drains.

    A worker takes only jobs that carry all its tags. LOST are those that went without a goodbye in
    the last minutes, with the number of jobs that were taken from them. To drain one:
    `kubectl patch queueworker NAME --type merge -p '{"spec": {"drain": true}}'`.
    """
    with remote.connected() as queue:
        told = queue.worker_list(namespace=remote.namespace)
    connected = tuple(one for one in told.workers if _handles(one, kind))
    lost = tuple(one for one in told.lost if _handles(one, kind))
    if remote.output == "json":
        rendering.print_json(told.model_copy(update={"workers": connected, "lost": lost}))
    else:
        _table(connected, lost)


def _handles(one: Worker | LostWorker, kind: str | None) -> bool:
    return kind is None or not one.types or kind in one.types


def _table(connected: Iterable[Worker], lost: Iterable[LostWorker]) -> None:
    made = rendering.table(
        *("WORKER", "STATE", "BUSY#", "SLOTS#", "TYPES", "TAGS", "VERSION", "HEARD"),
        expendable=("VERSION", "HEARD"),
        elastic=("TYPES", "TAGS"),
    )
    for one in connected:
        made.add_row(
            rendering.plain(one.name),
            Text("DRAINING", style="yellow") if one.draining else Text("CONNECTED", style="green"),
            rendering.number(one.busy),
            rendering.number(one.capacity),
            _names(one.types, nothing="any"),
            _names(one.tags, nothing="-"),
            rendering.plain(one.version),
            rendering.age(one.heartbeat_at or one.connected_at),
        )
    for gone in lost:
        made.add_row(
            rendering.plain(gone.name),
            Text("LOST", style="red"),
            rendering.number(gone.jobs),
            rendering.number(gone.capacity),
            _names(gone.types, nothing="any"),
            "",
            rendering.plain(gone.version),
            rendering.age(gone.lost_at),
        )
    rendering.print_rows(made, "no worker is connected")


def _names(names: Iterable[str], nothing: str) -> str:
    return rendering.plain(" ".join(sorted(names))) or nothing
