"""A Spark session for the tests of the pipeline, set up as the pipeline sets up its own."""

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millstream.pipeline.spec import Spec, parse_spec
from tests.support.s3 import BUCKET, S3Server

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
def pipeline_spark(shared_spark: "SparkSession") -> "SparkSession":
    return shared_spark.newSession()


@pytest.fixture
def spark(pipeline_spark: "SparkSession", make_spec: MakeSpec) -> "SparkSession":
    """The session with the settings of a plain spec, whatever a test before changed."""
    from millstream.pipeline.spark_session import prepare

    prepare(pipeline_spark, make_spec())
    return pipeline_spark


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def bucket(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The address of a folder of a bucket that is this test's alone."""
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/{tmp_path.name}"
