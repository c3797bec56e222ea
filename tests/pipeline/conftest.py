"""One Spark session for the tests of the pipeline, set up as the pipeline sets up its own."""

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millstream.pipeline.spec import Spec, parse_spec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The core is complete without the extra.
if None in map(importlib.util.find_spec, ("pyspark", "deltalake")):
    collect_ignore_glob = ["test_*.py"]

MakeSpec = Callable[..., Spec]


@pytest.fixture
def make_spec(tmp_path: Path) -> MakeSpec:
    """A spec from the text of a pipeline file, with its home in the test's folder."""

    def make(text: str = "") -> Spec:
        return parse_spec(text, folder=tmp_path)

    return make


@pytest.fixture(scope="session")
def shared_spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    from millstream.pipeline.session import open_session

    spec = parse_spec("", folder=tmp_path_factory.mktemp("shared-pipeline"))
    # Short lives: the best compiler's work would never pay.
    session = open_session(
        spec,
        master="local[2]",
        settings={"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"},
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def spark(shared_spark: "SparkSession", make_spec: MakeSpec) -> "SparkSession":
    """The shared session with the settings of a plain spec, whatever a test before changed."""
    from millstream.pipeline.session import prepare

    prepare(shared_spark, make_spec())
    return shared_spark
