"""Which jobs were submitted, claimed and completed, a byte for each."""

from collections.abc import Sequence

from bench.programs.stores import Claimed, number_of


class Ledger:
    """Counts by job number, apart from whatever the storage says itself."""

    def __init__(self) -> None:
        self._claims = bytearray()
        self._completions = bytearray()
        self._retried: set[tuple[int, int]] = set()
        self._repeated = 0
        self.submitted = 0
        self.claimed = 0
        self.completed = 0

    def counts(self) -> dict[str, int]:
        return {"submitted": self.submitted, "completed": self.completed}

    def reserve(self, count: int) -> range:
        """The numbers of the next jobs."""
        first = len(self._claims)
        self._claims += bytes(count)
        self._completions += bytes(count)
        return range(first, first + count)

    @property
    def reserved(self) -> int:
        return len(self._claims)

    def record_submitted(self, count: int) -> None:
        self.submitted += count

    def record_claimed(self, claimed: Claimed) -> None:
        self.claimed += len(claimed)
        for job_id, _ in claimed:
            self._claims[number_of(job_id)] += 1

    def record_attempts(self, claimed: Sequence[tuple[str, str, int]]) -> None:
        """As `record_claimed`, of jobs that fail and come back; the third of each is the attempt,
        which nobody else may have been given.
        """
        self.record_claimed([(job_id, token) for job_id, token, attempt in claimed if attempt == 1])
        for job_id, _, attempt in claimed:
            if attempt > 1:
                self.claimed += 1
                self._repeated += (number_of(job_id), attempt) in self._retried
                self._retried.add((number_of(job_id), attempt))

    def record_completed(self, claimed: Claimed) -> None:
        self.completed += len(claimed)
        for job_id, _ in claimed:
            self._completions[number_of(job_id)] += 1

    @property
    def duplicates(self) -> int:
        """Jobs handed out, or completed, a second time, each time counted."""
        return self._repeated + sum(
            max(claims, completions) - 1
            for claims, completions in zip(self._claims, self._completions, strict=True)
            if claims > 1 or completions > 1
        )
