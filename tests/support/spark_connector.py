"""The jars of Spark's own Kafka connector, to be held against and worked with.

Each is fetched by itself: the connector of this Spark's version is not published, and the
one before it names dependencies that are not needed here.
"""

import fcntl
import functools
from pathlib import Path

from tests.support.tools import cache_directory, require, run_checked

_ARTIFACTS = [
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.1"),
    ("org.apache.commons", "commons-pool2", "2.12.1"),
]


@functools.cache
def connector_jars() -> str:
    """For `spark.jars`."""
    directory = cache_directory() / "spark-kafka-connector"
    directory.mkdir(exist_ok=True)
    paths = []
    with open(directory / "lock", "w") as lock:
        # Two test runs on a fresh machine must not write the same files.
        fcntl.flock(lock, fcntl.LOCK_EX)
        for group, artifact, version in _ARTIFACTS:
            path = directory / f"{artifact}-{version}.jar"
            if not path.exists():
                _fetch(f"{group}:{artifact}:{version}", path)
            paths.append(str(path))
    return ",".join(paths)


def _fetch(artifact: str, path: Path) -> None:
    """Under its name only when it is whole: a run may be aborted at any time."""
    fetching = path.parent / "fetching"
    what = [f"-Dartifact={artifact}", f"-DoutputDirectory={fetching}"]
    command = [require("mvn"), "-q", "-B", "dependency:copy", *what]
    run_checked(command, cwd=path.parent, timeout_seconds=300)
    (fetching / path.name).rename(path)
