"""Starts Spark: local by default, never on another interface than the loopback."""

import os
import pwd
import shutil
import subprocess
from collections.abc import Sequence
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pyspark
from pyspark.sql import SparkSession

from queue_operator.pipeline.errors import DriverMissing, JavaMissing, NoAccount, NoCacheFolder

DRIVER_COORDINATES: Final = ("org.postgresql", "postgresql", "42.7.8")
DRIVER_CLASS: Final = "org.postgresql.Driver"
LOOPBACK: Final = "127.0.0.1"
FETCH_LIMIT_S: Final = 300


def build_session(
    master: str = "local[2]", java_options: Sequence[str] | None = None
) -> SparkSession:
    """A session with the JDBC driver on its class path, in UTC.

    `java_options` replace the use of the class archive. Raises JavaMissing, NoAccount,
    NoCacheFolder, and DriverMissing when the driver is neither cached nor to be had.
    """
    java_program()
    check_account()
    driver = prefetch_jars()
    # Settings of a `local` session only: elsewhere they belong to the cluster.
    settings = _local_settings(java_options) if master.startswith("local") else {}
    builder = SparkSession.Builder().master(master).appName("queue-operator-pipeline")
    for key, value in {**_settings(driver), **settings}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def prefetch_jars() -> Path:
    """The JDBC driver's jar, fetched from Maven Central into the cache at the first call.

    Later calls need no network. Raises DriverMissing and NoCacheFolder.
    """
    jar = _driver_jar()
    if not jar.exists():
        _fetch_driver(jar)
    return jar


def java_program() -> Path:
    """The `java` that Spark will use: of JAVA_HOME, else of PATH. Raises JavaMissing."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if found is None:
        raise JavaMissing
    return Path(found)


def ivy_dir() -> Path:
    """Where fetched jars live, below the user's cache folder. Raises NoCacheFolder."""
    try:
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:
        raise NoCacheFolder("this user has no home") from None
    return Path(cache).absolute() / "queue-operator" / "ivy"


def check_account() -> None:
    """Hadoop, on which Spark reads and writes files, does not start for a user without a name.
    Raises NoAccount.
    """
    uid = os.geteuid()
    try:
        pwd.getpwuid(uid)
    except KeyError:
        raise NoAccount(uid) from None


def _driver_jar() -> Path:
    organisation, module, revision = DRIVER_COORDINATES
    return ivy_dir() / "jars" / f"{organisation}_{module}-{revision}.jar"


def _fetch_driver(jar: Path) -> None:
    """Runs the Ivy that Spark brings along, as `spark.jars.packages` would, but at a time
    of our choosing and without starting Spark: a session start then resolves nothing.
    """
    try:
        jar.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NoCacheFolder(f"{error.filename} cannot be made: {error.strerror}") from error
    if not os.access(jar.parent, os.W_OK):
        raise NoCacheFolder(f"{jar.parent} cannot be written")
    ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    command = [
        *(str(java_program()), f"-Divy.default.ivy.user.dir={ivy_dir()}", *_proxy_options()),
        *("-cp", str(ivy), "org.apache.ivy.Main", "-warn", "-notransitive"),
        *("-cache", str(ivy_dir() / "cache")),
        *("-dependency", *DRIVER_COORDINATES),
        *("-confs", "default", "-types", "jar", "bundle"),
        *("-retrieve", str(jar.parent / "[organisation]_[artifact]-[revision].[ext]")),
    ]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=FETCH_LIMIT_S, check=False
        )
        said = (done.stdout + done.stderr).strip()
    except subprocess.TimeoutExpired:
        said = f"no answer within {FETCH_LIMIT_S} s"
    if not jar.exists():
        raise DriverMissing(
            f"the PostgreSQL JDBC driver {':'.join(DRIVER_COORDINATES)} could not be fetched from "
            f"Maven Central; check the network or put the jar at {jar}. Ivy said: {said[-2000:]}"
        )


def _proxy_options() -> list[str]:
    """The proxy of the environment, which Java does not look for there."""
    given = os.environ.get("https_proxy") or os.environ.get("HTTPS_PROXY") or ""
    proxy = urlsplit(given if "://" in given else f"http://{given}")
    host, _, port = proxy.netloc.rpartition("@")[2].rpartition(":")
    if not (host and port.isdecimal()):
        return []
    return [f"-Dhttps.proxyHost={host.strip('[]')}", f"-Dhttps.proxyPort={port}"]


def _settings(driver: Path) -> dict[str, str]:
    return {
        "spark.jars": str(driver),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.ansi.enabled": "true",
        "spark.ui.showConsoleProgress": "false",
    }


def class_archive() -> Path:
    """Where the classes that a run loads are kept ready for this Spark and this Java.

    Java ignores an archive that is missing or not of its own making.
    """
    java = java_program().resolve()
    made_for = f"{java} {java.stat().st_mtime_ns} {_driver_jar()}"
    digest = sha256(made_for.encode()).hexdigest()[:16]
    return ivy_dir().parent / f"spark-{pyspark.__version__}-{digest}.jsa"


def _java_options(more: Sequence[str] | None) -> str:
    log = Path(str(files(__package__) / "log4j2.properties")).as_uri()
    if more is None:
        more = [f'"-XX:SharedArchiveFile={class_archive()}"', "-Xlog:cds=off", "-Xshare:auto"]
    # Most of a run's time goes into loading classes and compiling them: the quick compiler
    # and the small collector save a quarter of it on two cores, the archive another third.
    quick = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return " ".join([f"-Dlog4j2.configurationFile={log}", *quick, *more])


def _local_settings(java_options: Sequence[str] | None) -> dict[str, str]:
    # Without this Spark binds whatever address the host name resolves to.
    os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    return {
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": _java_options(java_options),
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "4",
    }
