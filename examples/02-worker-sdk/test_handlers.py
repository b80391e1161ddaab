"""The handlers without a server, on a clock that the test moves: `python -m pytest`."""

from handlers import Statement, worker

from queue_operator.harness import JobState, WorkerHarness
from queue_operator.worker.testing import run_handler


def test_a_receipt() -> None:
    printed = run_handler(worker, "receipt", {"customer": "Ada", "order": 7})
    assert printed == {"text": "Order 7 of Ada, with thanks"}


def test_a_statement_and_its_receipts() -> None:
    with WorkerHarness(worker) as harness:
        job_id = harness.submit("statement", Statement(customer="Ada", orders=[1, 2, 13]))
        harness.run_until_finished()
        total = harness.result(job_id)
        assert total["cents"] == 1600
        receipts = [harness.job(child) for child in total["receipts"]]
        assert {job.state for job in receipts} == {JobState.COMPLETED}
        # The printer is out of paper once, at order 13.
        assert [job.attempt for job in receipts] == [1, 1, 2]


def test_a_cancel_stops_between_two_orders() -> None:
    with WorkerHarness(worker) as harness:
        job_id = harness.submit("statement", Statement(customer="Ada", orders=[1, 2], slow_s=60))
        harness.advance("PT1M30S")
        harness.cancel(job_id)
        harness.run_until_idle()
        assert harness.job(job_id).state is JobState.STOPPED
        # The receipt of the first order had been asked for by then.
        assert len(harness.jobs()) == 2


def test_an_order_that_does_not_exist_is_not_tried_again() -> None:
    with WorkerHarness(worker) as harness:
        job_id = harness.submit("statement", Statement(customer="Ada", orders=[404]))
        harness.run_until_idle()
        job = harness.job(job_id)
        assert (job.state, job.attempt) == (JobState.DEAD_LETTER, 1)
        assert job.error is not None
        assert job.error.code == "NO_SUCH_ORDER"
