"""`queue-operator dev`: a Kubernetes cluster and a PostgreSQL for development."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from queue_operator import devcluster
from queue_operator.cli.command import CommandGroup
from queue_operator.devcluster import (
    ClusterInfo,
    ClusterStatus,
    DevClusterError,
    ExistingOptions,
    Finding,
    Purpose,
)

_OUTPUTS = ("table", "json")
_PIPE_WIDTH = 160


def _name_option(function: Callable[..., Any]) -> Callable[..., Any]:
    help_text = "Name of the cluster; several may run side by side."
    return click.option("--name", default="dev", show_default=True, help=help_text)(function)


def _output_option(function: Callable[..., Any]) -> Callable[..., Any]:
    choice = click.Choice(_OUTPUTS)
    return click.option(
        "-o", "--output", type=choice, default="table", show_default=True, help="How to print."
    )(function)


@click.group(cls=CommandGroup)
def dev() -> None:
    """Run a Kubernetes cluster and a PostgreSQL on this machine.

    As root on Linux it is a whole cluster without Docker; with Docker it is kind; otherwise the
    control plane alone, against which the operator runs as a process.
    """


@dev.command()
@_name_option
@click.option(
    "--provider",
    type=click.Choice(devcluster.PROVIDERS),
    help="What provides the cluster.  [default: local as root on Linux, else kind if Docker "
    "answers, else control-plane]",
)
@click.option(
    "--kubeconfig",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Provider existing: the file to read.  [default: $KUBECONFIG or ~/.kube/config]",
)
@click.option("--context", help="Provider existing: the context.  [default: the current one]")
@click.option("--postgres-dsn", help="Provider existing: a database that pods reach too.")
@_output_option
def up(
    name: str,
    provider: str | None,
    kubeconfig: Path | None,
    context: str | None,
    postgres_dsn: str | None,
    output: str,
) -> None:
    """Start the cluster, or repair it; returns at once if it runs.

    The first start builds Kubernetes from source, about 15 minutes on two cores. Later ones take
    seconds.
    """
    existing = ExistingOptions(kubeconfig, context, postgres_dsn)
    with _reported_failures():
        info = devcluster.up(name, provider, devcluster.progress_for(sys.stderr), existing)
    _print_info(info, output)


@dev.command()
@_name_option
def down(name: str) -> None:
    """Stop the cluster and remove all its data."""
    with _reported_failures():
        devcluster.down(name, devcluster.progress_for(sys.stderr))
    click.echo(f"cluster {name} is gone")


@dev.command()
@click.option("--name", help="Only this cluster.  [default: all]")
@_output_option
def status(name: str | None, output: str) -> None:
    """Show clusters and their parts; exits with 1 if a part does not run."""
    with _reported_failures():
        found = devcluster.statuses() if name is None else [devcluster.status(name)]
    if output == "json":
        click.echo(json.dumps([_status_fields(cluster) for cluster in found], indent=2))
    elif found:
        _print_statuses(found)
    else:
        click.echo("no development cluster: start one with `queue-operator dev up`")
    if not all(cluster.ready for cluster in found):
        sys.exit(1)


@dev.command()
@click.option(
    "--for",
    "purposes",
    type=click.Choice([purpose.value for purpose in Purpose]),
    multiple=True,
    help="Only what this target of `make` needs; repeatable.  [default: all]",
)
@_output_option
def doctor(purposes: tuple[str, ...], output: str) -> None:
    """Show what this machine lacks for the checks, the demo, the tests and the benchmark.

    Each with how to get it; exits with 1 if something is missing.

    As root on Debian and Ubuntu, `make demo` and `make test` install what is missing themselves.
    """
    chosen = [Purpose(one) for one in purposes or list(Purpose)]
    found = devcluster.findings(chosen)
    if output == "json":
        click.echo(json.dumps([_finding_fields(finding) for finding in found], indent=2))
    else:
        _print_findings(chosen, found)
    if any(finding.is_missing for finding in found):
        sys.exit(1)


@dev.command("load-image")
@_name_option
@click.argument("archive", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def load_image(name: str, archive: Path) -> None:
    """Load the images of a docker-archive into the cluster.

    Pods use them by tag, with imagePullPolicy IfNotPresent or Never.
    """
    with _reported_failures():
        devcluster.load_image(archive, name, devcluster.progress_for(sys.stderr))
    click.echo(f"loaded {archive.name} into {name}")


@dev.command("build-image")
@click.option("--tag", default="queue-operator:dev", show_default=True, help="Name of the image.")
@click.option(
    "--context",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder with a Dockerfile.  [default: this checkout]",
)
@click.option("--load/--no-load", default=False, help="Load it into the cluster as well.")
@_name_option
def build_image(tag: str, context: Path | None, load: bool, name: str) -> None:
    """Build an image as a docker-archive and print its path."""
    progress = devcluster.progress_for(sys.stderr)
    with _reported_failures():
        archive = devcluster.build_image(tag, context=context, progress=progress)
        if load:
            devcluster.load_image(archive, name, progress)
    click.echo(archive)


@contextmanager
def _reported_failures() -> Iterator[None]:
    try:
        yield
    except DevClusterError as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        if error.filename is None:
            raise
        raise click.ClickException(f"{error.filename}: {error.strerror}") from error


def _print_info(info: ClusterInfo, output: str) -> None:
    if output == "json":
        click.echo(json.dumps(info.to_json(), indent=2))
        return
    # No table: what is meant to be copied must not be wrapped.
    for key, value in info.to_json().items():
        click.echo(f"{key:<20} {value}")
    click.echo(f"\nexport KUBECONFIG={info.kubeconfig}")


def _print_statuses(found: list[ClusterStatus]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("cluster", "provider", "part", "state")
    for cluster in found:
        for part, running in cluster.parts.items():
            state = "[green]running[/]" if running else "[red]not running[/]"
            table.add_row(cluster.name, cluster.provider, part, state)
        table.add_section()
    Console().print(table)


def _print_findings(chosen: Sequence[Purpose], found: Sequence[Finding]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("needed", "for make", "found", box=SIMPLE_HEAD, pad_edge=False)
    for finding in found:
        targets = ", ".join(sorted(finding.need.purposes))
        missing = Text(f"missing: {finding.need.hint()}", style="red")
        table.add_row(finding.need.name, targets, missing if finding.is_missing else finding.found)
    # What is meant to be copied must not be cut by a pipe.
    Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH).print(table)
    click.echo(_verdict(chosen, found))
    packages = [p for finding in found if finding.is_missing for p in finding.need.packages]
    if packages:
        command = devcluster.install_command(tuple(dict.fromkeys(packages)))
        click.echo(f"on Debian or Ubuntu, all at once, as root: {command}")


def _verdict(chosen: Sequence[Purpose], found: Sequence[Finding]) -> str:
    """What of it can run here."""
    lacking = {purpose for one in found if one.is_missing for purpose in one.need.purposes}
    ready = ", ".join(f"make {one}" for one in chosen if one not in lacking)
    waiting = ", ".join(f"make {one}" for one in chosen if one in lacking)
    told = [f"{ready}: all of it is here"] if ready else []
    told += [f"{waiting}: not before the rest is here"] if waiting else []
    return "; ".join(told)


def _finding_fields(finding: Finding) -> dict[str, Any]:
    need = finding.need
    return {
        "need": need.name,
        "for": sorted(need.purposes),
        "found": finding.found or None,
        "missing": finding.is_missing,
        "packages": list(need.packages),
        "hint": need.hint() if finding.is_missing else None,
    }


def _status_fields(cluster: ClusterStatus) -> dict[str, Any]:
    fields = dataclasses.asdict(dataclasses.replace(cluster, info=None))
    info = None if cluster.info is None else cluster.info.to_json()
    return {**fields, "ready": cluster.ready, "info": info}
