"""`make demo`."""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from demo.bulk import run_bulk
from demo.fates import Fates
from demo.install import NAMESPACE, install_operator, install_workers, load_images, start_cluster
from demo.kube import Kube
from demo.narrator import DemoFailed, chapter, console, say
from demo.windows import Rollup, prepare_spark, show_metrics, show_tables
from queue_operator.devcluster.errors import DevClusterError

GOODBYE = """The cluster stays up for you:
  export KUBECONFIG={kubeconfig}
  {kubectl} -n demo get qj,qw        look around
  {kubectl} -n demo apply -f …       submit your own QueueJob
  .venv/bin/queue-operator dev down  take it all down
Next: examples/01-hello/README.md, docs/guides/write-a-worker.md, docs/guides/submit-jobs.md"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    parser.add_argument("--name", default="dev", help="name of the development cluster")
    name = parser.parse_args().name
    started = time.monotonic()
    try:
        show(name)
    except (DemoFailed, DevClusterError) as failure:
        console.print(f"[red]✘[/] {failure}")
        return 1
    say(f"[bold green]All of it was so.[/] [dim]{time.monotonic() - started:.0f} s in all[/]")
    return 0


def show(name: str) -> None:
    with chapter("A Kubernetes cluster and a PostgreSQL"):
        cluster = start_cluster(name)
        prepare_spark()
    with chapter("The image, from the Dockerfile, and the workers' on top of it"):
        load_images(cluster)
    with chapter("The operator and its workers, by Helm"):
        install_operator(cluster)
        install_workers(cluster)
    kube = Kube(cluster, NAMESPACE)
    fates = Fates(cluster, kube)
    with chapter("kubectl apply -f examples/01-hello/"):
        fates.submit()
        fates.watch()
    with chapter("2,000 jobs through the REST batch door"):
        run_bulk(cluster, kube)
    with chapter("kubectl get qj,qw"):
        show_tables(kube)
    with chapter("Metrics"):
        show_metrics(cluster)
    with chapter("Spark: what just happened, by the hour"):
        lake = Path(tempfile.gettempdir()) / f"queue-operator-lake-{name}"
        Rollup(cluster, lake).run()
    say(GOODBYE.format(kubeconfig=cluster.kubeconfig, kubectl=cluster.kubectl))


if __name__ == "__main__":
    sys.exit(main())
