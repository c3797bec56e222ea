"""Java programs of the tests, compiled once into the cache."""

import fcntl
import functools
import hashlib
import shutil
from pathlib import Path

from tests.support.jars import classpath, kafka_directory
from tests.support.tools import require, run_checked, skip_if_java_is_left_out

_LOGGING = Path(__file__).parent / "java" / "log4j2.xml"


def java_command(source: Path, *, heap: str = "256m") -> list[str]:
    """What starts the class of this source file with Kafka's jars; arguments follow."""
    skip_if_java_is_left_out()
    return [
        require("java"),
        f"-Xmx{heap}",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        f"-Dlog4j2.configurationFile={_LOGGING}",
        "-cp",
        f"{_compiled(source)}:{classpath()}",
        source.stem,
    ]


@functools.cache
def _compiled(source: Path) -> Path:
    # Named by the source's digest: an edited source is compiled again, an old one is not.
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    directory = kafka_directory() / f"classes-{digest}"
    with open(kafka_directory() / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not directory.exists():
            # Under its name only when it is whole: a run may be aborted at any time.
            building = directory.with_suffix(".part")
            shutil.rmtree(building, ignore_errors=True)
            run_checked(
                [require("javac"), "-cp", classpath(), "-d", str(building), str(source)],
                timeout_seconds=120,
            )
            building.rename(directory)
    return directory
