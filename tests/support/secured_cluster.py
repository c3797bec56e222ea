"""Three nodes as `millstream secure` sets them up: TLS and SCRAM between all of them and their
clients, and SASL to ZooKeeper."""

import contextlib
import secrets
import ssl
from collections.abc import Iterator
from pathlib import Path

import click
from click.testing import CliRunner

from millstream.cli.certs import certs
from millstream.cli.secure import secure
from millstream.security.certificate_authority import read_certificates
from tests.support.cluster import MillstreamCluster
from tests.support.node import MillstreamNode
from tests.support.zookeeper import zookeeper_with_sasl

_USER = "nodes"
_SECONDS_MAX = 20


class SecuredCluster(MillstreamCluster):
    """`directory` is that of `millstream secure`."""

    def __init__(
        self, nodes: dict[int, MillstreamNode], zookeeper_pid: int, directory: Path
    ) -> None:
        super().__init__(nodes, zookeeper_pid, directory / "client.properties")
        self._directory = directory

    def renew_certificate(self, node_id: int) -> None:
        _run(certs, "renew", str(self._directory), f"server-{node_id}")

    def shows_its_certificate(self, node_id: int) -> bool:
        """Whether a node shows the newest one to new connections."""
        host, _, port = self.nodes[node_id].bootstrap.rpartition(":")
        try:
            shown = ssl.get_server_certificate((host, int(port)), timeout=_SECONDS_MAX)
        except OSError:
            return False
        newest = (self._directory / f"server-{node_id}.pem").read_bytes()
        return read_certificates(shown.encode())[0].serial == read_certificates(newest)[0].serial


@contextlib.contextmanager
def secured_cluster(folder: Path) -> Iterator[SecuredCluster]:
    folder.mkdir(parents=True, exist_ok=True)
    directory = folder / "secured"
    password = secrets.token_hex(16)
    login = folder / "zookeeper.jaas"
    login.write_text(f'DigestLoginModule required username="{_USER}" password="{password}";')
    with zookeeper_with_sasl(folder / "zookeeper", {_USER: password}) as zookeeper:
        _run(secure, str(directory), "--nodes", "3", "--zookeeper", zookeeper.address)
        options = [
            f"millstream.zookeeper.sasl.jaas.config=${{file:{login}}}",
            # A test's ports are not known before.
            "advertised.listeners=",
            "log.segment.bytes=1048576",
        ]
        flags = [part for option in options for part in ("--set", option)]
        nodes = {
            node_id: MillstreamNode(
                folder / f"node-{node_id}",
                *("--config", str(directory / f"server-{node_id}.properties"), *flags),
                protocol="SASL_SSL",
            )
            for node_id in (1, 2, 3)
        }
        cluster = SecuredCluster(nodes, zookeeper.process.pid, directory)
        try:
            cluster.start()
            yield cluster
            cluster.stop()
        finally:
            cluster.kill_all()


def _run(command: click.Command, *arguments: str) -> None:
    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
