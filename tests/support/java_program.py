"""Java programs of the tests, compiled once into the cache."""

import fcntl
import functools
import hashlib
import shutil
from pathlib import Path

from tests.support.jars import classpath, kafka_directory, streams_classpath
from tests.support.tools import require, run_checked, skip_if_java_is_left_out

_LOGGING = Path(__file__).parent / "java" / "log4j2.xml"


def java_command(source: Path, *, heap: str = "256m") -> list[str]:
    """What starts the class of this source file with Kafka's jars; arguments follow."""
    skip_if_java_is_left_out()
    jars = classpath()
    return [*_java(heap), "-cp", f"{_compiled(source, jars)}:{jars}", source.stem]


def streams_command(source: Path, *, heap: str = "256m") -> list[str]:
    """The same with the jars of Kafka Streams."""
    skip_if_java_is_left_out()
    jars = streams_classpath()
    return [*_java(heap), "-cp", f"{_compiled(source, jars)}:{jars}", source.stem]


def kafka_streams_command(main_class: str, *, heap: str = "256m") -> list[str]:
    """What starts a program of Kafka Streams' own tests."""
    skip_if_java_is_left_out()
    return [*_java(heap), "-cp", streams_classpath(), main_class]


def _java(heap: str) -> list[str]:
    return [
        require("java"),
        f"-Xmx{heap}",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        f"-Dlog4j2.configurationFile={_LOGGING}",
    ]


@functools.cache
def _compiled(source: Path, jars: str) -> Path:
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
                [require("javac"), "-cp", jars, "-d", str(building), str(source)],
                timeout_seconds=120,
            )
            building.rename(directory)
    return directory
