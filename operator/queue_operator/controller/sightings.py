"""What the watch has shown of each live QueueJob, so that an event seen before costs nothing."""


class Sightings:
    """Generations by uid. Only a cache: after a restart everything is taken in again."""

    def __init__(self) -> None:
        self._generations: dict[str, int] = {}
        self._finished: set[str] = set()

    def __len__(self) -> int:
        return len(self._generations)

    def __contains__(self, uid: str) -> bool:
        return uid in self._generations

    def generation(self, uid: str) -> int:
        """The newest generation seen, 0 when there is none."""
        return self._generations.get(uid, 0)

    def remember(self, uid: str, generation: int) -> None:
        self._generations[uid] = max(generation, self.generation(uid))

    def finished(self, uid: str) -> None:
        """Its final status has been written: the watch will call it deleted."""
        if uid in self._generations:
            self._finished.add(uid)

    def forget(self, uid: str) -> bool:
        """True when it left the watch because it had finished."""
        self._generations.pop(uid, None)
        was_finished = uid in self._finished
        self._finished.discard(uid)
        return was_finished

    def uids(self) -> list[str]:
        return list(self._generations)
