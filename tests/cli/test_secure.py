"""What `millstream secure` creates works with a node and a client at once."""

import stat
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from millstream.cli.failure import CommandFailed
from millstream.cli.secure import secure
from millstream.config import load_config, parse_listeners
from millstream.config.files import read_option_file
from millstream.security.certificate_authority import read_certificates
from millstream.security.tls import read_tls_options, server_context
from tests.support.cluster import wait_until
from tests.support.command_line import run_millstream
from tests.support.node import MillstreamNode
from tests.support.zookeeper import zookeeper_server

SECONDS_MAX = 60


def run(*arguments: str) -> str:
    result = CliRunner().invoke(secure, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def client_options(folder: Path) -> dict[str, str]:
    """The client file as confluent-kafka writes the same things."""
    options = read_option_file(folder / "client.properties")
    password = options["sasl.jaas.config"].split('password="')[1].split('"')[0]
    return {
        "bootstrap.servers": options["bootstrap.servers"],
        "security.protocol": options["security.protocol"],
        "sasl.mechanism": options["sasl.mechanism"],
        "sasl.username": "admin",
        "sasl.password": password,
        "ssl.ca.location": options["ssl.truststore.location"],
    }


def test_only_the_owner_can_read_what_is_created(tmp_path: Path) -> None:
    run(str(tmp_path / "made"))
    folder = tmp_path / "made"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    files = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    names = ("ca.key", "ca.pem", "client.properties", "server.pem", "server.properties")
    assert files == dict.fromkeys(names, 0o600)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(CommandFailed, match="not empty"):
        run(str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_no_secret_is_printed(tmp_path: Path) -> None:
    output = run(str(tmp_path / "made"))
    assert client_options(tmp_path / "made")["sasl.password"] not in output
    assert f"millstream broker --config {tmp_path}/made/server.properties" in output


def test_without_a_host_it_is_loopback_and_with_one_all_interfaces(tmp_path: Path) -> None:
    run(str(tmp_path / "local"))
    config = load_config(file=tmp_path / "local" / "server.properties")
    (listener,) = parse_listeners(config)
    assert listener.is_loopback
    run(str(tmp_path / "open"), "--host", "kafka.example", "--host", "10.0.0.7")
    config = load_config(file=tmp_path / "open" / "server.properties")
    (listener,) = parse_listeners(config)
    assert (listener.host, listener.advertised_host) == ("", "kafka.example")
    (facts,) = read_certificates((tmp_path / "open" / "server.pem").read_bytes())
    assert {"localhost", "127.0.0.1", "::1", "kafka.example", "10.0.0.7"} <= set(facts.hosts)
    server_context(read_tls_options(config.for_listener("SASL_SSL")))


def test_each_node_has_its_own_files(tmp_path: Path) -> None:
    hosts = [part for host in ("a", "b", "c") for part in ("--host", host)]
    run(str(tmp_path / "made"), "--nodes", "3", "--zookeeper", "zk:2181/x", *hosts)
    digests = set()
    for number, host in enumerate("abc", start=1):
        config = load_config(file=tmp_path / "made" / f"server-{number}.properties")
        (listener,) = parse_listeners(config)
        assert (listener.advertised_host, listener.advertised_port) == (host, 9092)
        assert config.int("node.id") == number
        assert config.string("zookeeper.connect") == "zk:2181/x"
        digests.add(config.string("millstream.zookeeper.digest"))
        (facts,) = read_certificates((tmp_path / "made" / f"server-{number}.pem").read_bytes())
        assert host in facts.hosts
    assert len(digests) == 1
    assert client_options(tmp_path / "made")["bootstrap.servers"] == "a:9092,b:9092,c:9092"


def test_a_number_of_hosts_that_fits_no_nodes_is_wrong_usage(tmp_path: Path) -> None:
    arguments = [str(tmp_path / "made"), "--nodes", "3", "--host", "a"]
    result = CliRunner().invoke(secure, arguments)
    assert result.exit_code == 2
    assert not (tmp_path / "made").exists()


def test_a_host_that_cannot_be_one_is_wrong_usage(tmp_path: Path) -> None:
    result = CliRunner().invoke(secure, [str(tmp_path / "made"), "--host", "kafka.example:9092/x"])
    assert result.exit_code == 2
    assert "neither a host name nor an address" in result.output
    assert not (tmp_path / "made").exists()


def test_an_address_of_ipv6_is_written_in_brackets(tmp_path: Path) -> None:
    run(str(tmp_path / "made"), "--host", "fd00::7")
    (listener,) = parse_listeners(load_config(file=tmp_path / "made" / "server.properties"))
    assert listener.advertised_host == "fd00::7"
    assert client_options(tmp_path / "made")["bootstrap.servers"] == "[fd00::7]:9092"


def use(options: dict[str, str]) -> None:
    producer = Producer(options)
    producer.produce("secured", b"value")
    assert producer.flush(SECONDS_MAX) == 0


def node_of(folder: Path, config: str, number: int) -> MillstreamNode:
    """On a port of its own, which other tests leave alone."""
    return MillstreamNode(
        folder / f"data-{number}",
        *("--config", str(folder / config), "--set", "advertised.listeners="),
        protocol="SASL_SSL",
    )


def test_one_node_starts_and_lets_its_admin_in_only(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    run(str(folder))
    with node_of(folder, "server.properties", 1) as node:
        options = {**client_options(folder), "bootstrap.servers": node.bootstrap}
        use(options)
        wrong = {**options, "sasl.password": options["sasl.password"][:-1] + "!", "log_level": "0"}
        with pytest.raises(KafkaException):
            AdminClient(wrong).list_topics(timeout=3)
        assert options["sasl.password"] not in node.log_text
        listed = run_millstream(
            *("topic", "list", "-b", node.bootstrap),
            *("--config", str(folder / "client.properties")),
        )
        assert (listed.exit_code, "secured" in listed.output) == (0, True), listed.errors


@pytest.mark.timeout(180)
def test_three_nodes_start_and_replicate(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    with zookeeper_server(tmp_path / "zookeeper") as zookeeper:
        run(str(folder), "--nodes", "3", "--zookeeper", zookeeper.address)
        nodes = [node_of(folder, f"server-{each}.properties", each) for each in (1, 2, 3)]
        with nodes[0], nodes[1], nodes[2]:
            bootstrap = ",".join(node.bootstrap for node in nodes)
            options = {**client_options(folder), "bootstrap.servers": bootstrap}
            admin = AdminClient(options)
            wait_until(lambda: len(admin.list_topics(timeout=20).brokers) == 3, "all are there")
            use({**options, "acks": "all"})
            (partition,) = admin.list_topics(timeout=20).topics["secured"].partitions.values()
            assert len(partition.replicas) == 3
