"""A real ZooKeeper, one for all tests of a session; each test has a root of its own."""

import contextlib
import itertools
from collections.abc import Iterator, Sequence
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
    folder: Path,
    *,
    jars: str | None = None,
    settings: str = "",
    host: str = "127.0.0.1",
    java_options: Sequence[str] = (),
) -> Iterator[ZooKeeperServer]:
    skip_if_java_is_left_out()
    require("java")
    server = ZooKeeperServer(folder, host=host, settings=settings, java_options=java_options)
    server.start(jars or spark_jars())
    try:
        yield server
    finally:
        server.stop()


@contextlib.contextmanager
def zookeeper_with_sasl(
    folder: Path, users: dict[str, str], *, is_required: bool = True
) -> Iterator[ZooKeeperServer]:
    """Only these users can log in; if it is required, nobody can stay without."""
    folder.mkdir(parents=True, exist_ok=True)
    names = " ".join(f'user_{name}="{password}"' for name, password in users.items())
    module = "org.apache.zookeeper.server.auth.DigestLoginModule"
    jaas = folder / "jaas.conf"
    jaas.write_text(f"Server {{ {module} required {names}; }};\n")
    settings = (
        "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n"
        f"sessionRequireClientSASLAuth={str(is_required).lower()}\n"
    )
    java_options = [f"-Djava.security.auth.login.config={jaas}"]
    with zookeeper_server(folder, settings=settings, java_options=java_options) as server:
        yield server


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
