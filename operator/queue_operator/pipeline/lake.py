"""The lake's folders: `bronze/event/generation=G/run=R/kind=K/day=D/*.parquet`.

A run's folder is written as a whole, so a run that is tried again replaces what the
broken one left. All access goes through Hadoop's file system API, so that the lake may
be a local folder or anything Spark has a scheme for.
"""

import uuid
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from queue_operator.pipeline.schemas import BRONZE, EVENT_KEY

COMPACT_ABOVE_RUNS: Final = 24
"""A generation with more run folders than this has them merged into one."""

_IDENTITY: Final = "_lake_id"
_COMPACTED: Final = "compacted-"
_AS_NAMED: Final = {"__globPaths__": "false"}
"""So that Spark takes brackets, stars and braces in a folder's name for what they are."""


class Lake:
    """The Parquet files of one queue, below `root`, a local folder or a Hadoop URI."""

    def __init__(self, spark: SparkSession, root: Path | str) -> None:
        self._spark = spark
        # As Hadoop wants it, which encodes what has to be encoded itself.
        self.root = str(root) if "://" in str(root) else f"file://{Path(root).absolute()}"
        self.events = f"{self.root}/bronze/event"

    def identity(self) -> str:
        """The lake's id, made at the first call; it moves along when the lake is moved."""
        path = self._path(f"{self.root}/{_IDENTITY}")
        files = self._files(path)
        if not files.exists(path):
            stream = files.create(path, False)
            stream.write(bytearray(f"lake-{uuid.uuid4()}".encode()))
            stream.close()
        stream = files.open(path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def newest_generation(self) -> int:
        """0 when there is none."""
        return max((int(name) for name in self._children(self.events, "generation=")), default=0)

    def runs(self, generation: int) -> list[str]:
        return sorted(self._children(f"{self.events}/generation={generation}", "run="))

    def write(self, rows: DataFrame, generation: int, run: str) -> None:
        """Replaces what this run wrote before."""
        rows.write.mode("overwrite").partitionBy("kind", "day").parquet(
            self._folder(generation, run)
        )

    def read(self) -> DataFrame:
        """Every bronze row there is; an event may be there more than once."""
        if not self._exists(self.events):
            return self._spark.createDataFrame([], BRONZE)
        return self._read(self.events)

    def read_run(self, generation: int, run: str) -> DataFrame:
        """What one run wrote."""
        return self._read(self._folder(generation, run))

    def compact(self, generation: int, above_runs: int = COMPACT_ABOVE_RUNS) -> int:
        """Merges the run folders of a generation when there are too many; tells how many.

        Killed anywhere, it leaves each event at least once, which is all that readers ask:
        what it writes has a name of its own and what it read is deleted only afterwards.
        """
        runs = self.runs(generation)
        if len(runs) <= above_runs:
            return 0
        folders = [self._folder(generation, run) for run in runs]
        rows = self._read(*folders).drop("generation", "run").dropDuplicates([*EVENT_KEY])
        merged = f"{_COMPACTED}{uuid.uuid4()}"
        self.write(rows.hint("rebalance", "kind", "day"), generation, merged)
        for folder in folders:
            self._delete(folder)
        return len(runs)

    def _read(self, *folders: str) -> DataFrame:
        reader = self._spark.read.schema(BRONZE).options(basePath=self.events, **_AS_NAMED)
        return reader.parquet(*folders)

    def _folder(self, generation: int, run: str) -> str:
        return f"{self.events}/generation={generation}/run={run}"

    @property
    def _jvm(self) -> Any:
        return self._spark._jvm

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(name)

    def _files(self, path: Any) -> Any:
        return path.getFileSystem(self._spark._jsc.hadoopConfiguration())

    def _exists(self, name: str) -> bool:
        path = self._path(name)
        return bool(self._files(path).exists(path))

    def _delete(self, name: str) -> None:
        path = self._path(name)
        self._files(path).delete(path, True)

    def _children(self, name: str, prefix: str) -> list[str]:
        """What follows `prefix` in the names of the folders in `name` that start with it."""
        if not self._exists(name):
            return []
        path = self._path(name)
        names = (entry.getPath().getName() for entry in self._files(path).listStatus(path))
        return [entry.removeprefix(prefix) for entry in names if entry.startswith(prefix)]
