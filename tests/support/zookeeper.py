"""A real ZooKeeper, one for all tests of a session; each test has a root of its own."""

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from millstream.cli.zookeeper import ZooKeeperServer, debian_class_path, spark_class_path
from millstream.cluster.stores.ensemble import Ensemble
from tests.support.tools import MissingTool, require, skip_if_java_is_left_out

_ROOTS = itertools.count(1)
_TIMEOUTS = {"session_timeout_ms": 18_000, "connect_timeout_ms": 18_000}


def ensemble_at(hosts: str, root: str = "", **settings: Any) -> Ensemble:
    return Ensemble(hosts, root, **{**_TIMEOUTS, **settings})


@contextlib.contextmanager
def zookeeper_server(
    folder: Path, *, jars: str | None = None, settings: str = "", host: str = "127.0.0.1"
) -> Iterator[ZooKeeperServer]:
    skip_if_java_is_left_out()
    require("java")
    server = ZooKeeperServer(folder, host=host, settings=settings)
    server.start(jars or spark_jars())
    try:
        yield server
    finally:
        server.stop()


def spark_jars() -> str:
    jars = spark_class_path()
    if jars is None:
        raise MissingTool("PySpark, whose jars hold ZooKeeper: pip install 'millstream[spark]'")
    return jars


def debian_jars() -> str:
    jars = debian_class_path()
    if jars is None:
        raise MissingTool("ZooKeeper is not installed; on Debian: apt-get install -y zookeeper")
    return jars


def new_root() -> str:
    return f"/test-{next(_ROOTS)}"
