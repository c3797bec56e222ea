"""The jars of Apache Kafka, fetched once by Maven into the cache."""

import fcntl
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support.tools import cache_directory, require, run_checked

KAFKA_VERSION = "4.3.0"
_LOG4J_VERSION = "2.25.4"


class _Artifact(NamedTuple):
    group: str
    name: str
    version: str
    classifier: str = ""


_KAFKA = [
    _Artifact("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    _Artifact("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
    _Artifact("org.apache.kafka", "kafka-clients", KAFKA_VERSION),
    # Kafka logs through slf4j 1.7; without a binding its errors are lost.
    _Artifact("org.apache.logging.log4j", "log4j-slf4j-impl", _LOG4J_VERSION),
    _Artifact("org.apache.logging.log4j", "log4j-core", _LOG4J_VERSION),
]
# With the programs of Kafka's system tests, and what these need beside the jars above.
_STREAMS = [
    _Artifact("org.apache.kafka", "kafka-streams", KAFKA_VERSION),
    _Artifact("org.apache.kafka", "kafka-streams", KAFKA_VERSION, "test"),
    _Artifact("org.apache.kafka", "kafka-clients", KAFKA_VERSION, "test"),
    _Artifact("org.junit.jupiter", "junit-jupiter-api", "5.13.1"),
]


@functools.cache
def kafka_directory() -> Path:
    """The cache directory of this Kafka version, with its jars in `jars/`."""
    return _fetched(f"kafka-{KAFKA_VERSION}", _KAFKA)


def classpath() -> str:
    return f"{kafka_directory() / 'jars'}/*"


@functools.cache
def streams_classpath() -> str:
    """Kafka Streams and Kafka itself."""
    return f"{_fetched(f'kafka-streams-{KAFKA_VERSION}', _STREAMS) / 'jars'}/*:{classpath()}"


def _fetched(name: str, artifacts: Sequence[_Artifact]) -> Path:
    directory = cache_directory() / name
    directory.mkdir(exist_ok=True)
    with open(directory / "lock", "w") as lock:
        # Two test runs on a fresh machine must not write the same files.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (directory / "complete").exists():
            _fetch(directory, artifacts)
            (directory / "complete").touch()
    return directory


def _fetch(directory: Path, artifacts: Sequence[_Artifact]) -> None:
    (directory / "pom.xml").write_text(_pom(artifacts))
    run_checked(
        [
            require("mvn"),
            "-q",
            "-B",
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
            "-DoutputDirectory=jars",
        ],
        cwd=directory,
        timeout_seconds=600,
    )


def _pom(artifacts: Sequence[_Artifact]) -> str:
    dependencies = "".join(
        f"<dependency><groupId>{each.group}</groupId><artifactId>{each.name}</artifactId>"
        f"<version>{each.version}</version><classifier>{each.classifier}</classifier></dependency>"
        for each in artifacts
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>millstream</groupId><artifactId>kafka-for-tests</artifactId>"
        f"<version>1</version><dependencies>{dependencies}</dependencies></project>"
    )
