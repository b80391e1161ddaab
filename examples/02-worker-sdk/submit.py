"""Submits a statement and watches it until it ends: `python submit.py CUSTOMER ORDER...`."""

import argparse
import json
import os
import sys
import time

from queue_operator.client import JobStatus, QueueClient, Submission


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("customer")
    parser.add_argument("orders", type=int, nargs="+", metavar="ORDER")
    parser.add_argument("--slow-s", type=float, default=0.0, help="how long an order takes")
    parser.add_argument("--server", default=os.environ.get("SERVER", "http://localhost:8080"))
    asked = parser.parse_args()
    payload = {"customer": asked.customer, "orders": asked.orders, "slow_s": asked.slow_s}
    with QueueClient(asked.server) as client:
        job_id = client.submit(Submission(type="statement", payload=payload)).job_id
        if job_id is None:
            return 1
        print(f"job {job_id}", flush=True)
        ended = _watch(client, job_id)
    if ended.result is None or ended.result.status != "SUCCESS":
        error = ended.result.error if ended.result else None
        print(f"{ended.state} {error.message if error else ended.reason}")
        return 1
    print(f"{ended.state} {json.dumps(ended.result.output)}")
    return 0


def _watch(client: QueueClient, job_id: str) -> JobStatus:
    """Prints each change of the progress until the job has ended."""
    told = ""
    while (status := client.get(job_id)).completed_at is None:
        if (now := status.progress) is not None:
            said = f"attempt {status.attempt}: {now.percent} % {now.message}"
            if said != told:
                print(said, flush=True)
            told = said
        time.sleep(0.1)
    return client.get(job_id, include_result=True)


if __name__ == "__main__":
    sys.exit(main())
