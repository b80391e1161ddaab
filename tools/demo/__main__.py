"""`make demo`."""

import argparse
import signal
import subprocess
import sys
import time

from demo.bulk import run_bulk
from demo.fates import Fates
from demo.install import (
    NAMESPACE,
    install_operator,
    install_workers,
    load_images,
    require_pods,
    start_cluster,
)
from demo.kube import Kube
from demo.narrator import DemoFailed, chapter, give_up, rejoice, say
from demo.windows import Rollup, prepare_spark, show_metrics, show_tables
from queue_operator.devcluster import Purpose, ensure, progress_for
from queue_operator.devcluster.errors import DevClusterError
from queue_operator.domain.errors import QueueError

GOODBYE = """The cluster stays up for you:
  look around:    export KUBECONFIG={kubeconfig}
                  {kubectl} -n demo get qj,qw
  your own job:   {kubectl} -n demo apply -f …
  take it down:   .venv/bin/queue-operator dev down --name {name}
Next: examples/01-hello/README.md, docs/guides/write-a-worker.md, docs/guides/submit-jobs.md"""
HINT = """What there is stays up.
  look at it:     .venv/bin/queue-operator dev status --name {name}
  try again:      make demo, which goes on from there
  start over:     .venv/bin/queue-operator dev down --name {name}, then make demo"""
INTERRUPTED = 130
FAILURES = (DemoFailed, DevClusterError, QueueError, OSError, subprocess.TimeoutExpired)


def main() -> int:
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    parser.add_argument("--name", default="dev", help="name of the development cluster")
    name = parser.parse_args().name
    started = time.monotonic()
    # However it is ended, what it started beside the cluster ends with it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        show(name)
    except FAILURES as failure:
        give_up(failure, HINT.format(name=name))
        return 1
    except KeyboardInterrupt:
        give_up("interrupted", HINT.format(name=name))
        return INTERRUPTED
    rejoice("All of it was so.", time.monotonic() - started)
    return 0


def show(name: str) -> None:
    # The build may take twenty minutes; what will be missing at the end is missing now.
    require_pods()
    ensure(Purpose.DEMO, progress_for(sys.stderr))
    with chapter("A Kubernetes cluster and a PostgreSQL"):
        cluster = start_cluster(name)
        prepare_spark()
    with chapter("The image, from the Dockerfile, and the workers' on top of it"):
        load_images(cluster)
    with chapter("The operator and its workers, by Helm"):
        progress = progress_for(sys.stderr)
        with progress.step("charts/queue-operator, until it is ready"):
            install_operator(cluster)
        with progress.step("charts/queue-worker, for pool a with two pods and pool b with one"):
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
        Rollup(cluster).run()
    kubectl = cluster.kubectl
    say(GOODBYE.format(kubeconfig=cluster.kubeconfig, kubectl=kubectl, name=cluster.name))


if __name__ == "__main__":
    sys.exit(main())
