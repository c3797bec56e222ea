"""The jars of Apache Kafka, fetched once by Maven into the cache."""

import fcntl
import functools
from pathlib import Path

from tests.support.tools import cache_directory, require, run_checked

KAFKA_VERSION = "4.3.0"
_LOG4J_VERSION = "2.25.4"

_ARTIFACTS = [
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-clients", KAFKA_VERSION),
    # Kafka logs through slf4j 1.7; without a binding its errors are lost.
    ("org.apache.logging.log4j", "log4j-slf4j-impl", _LOG4J_VERSION),
    ("org.apache.logging.log4j", "log4j-core", _LOG4J_VERSION),
]


@functools.cache
def kafka_directory() -> Path:
    """The cache directory of this Kafka version, with its jars in `jars/`."""
    directory = cache_directory() / f"kafka-{KAFKA_VERSION}"
    directory.mkdir(exist_ok=True)
    with open(directory / "lock", "w") as lock:
        # Two test runs on a fresh machine must not write the same files.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (directory / "complete").exists():
            _fetch(directory)
            (directory / "complete").touch()
    return directory


def classpath() -> str:
    return f"{kafka_directory() / 'jars'}/*"


def _fetch(directory: Path) -> None:
    (directory / "pom.xml").write_text(_pom())
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


def _pom() -> str:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, artifact, version in _ARTIFACTS
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>millstream</groupId><artifactId>kafka-for-tests</artifactId>"
        f"<version>1</version><dependencies>{dependencies}</dependencies></project>"
    )
