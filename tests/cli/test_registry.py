import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from millstream.security.certificate_authority import issue, new_authority
from millstream.testing import Broker
from tests.support.command_line import run_millstream
from tests.support.rest_client import RestClient

SECONDS_MAX = 60


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@contextmanager
def registry(bootstrap: str, *options: str) -> Iterator[str]:
    """Its URL."""
    with subprocess.Popen(
        [sys.executable, "-m", "millstream", "registry", "--listen", "127.0.0.1:0"]
        + ["-b", bootstrap, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("registry on "), line
            yield line.removeprefix("registry on ").strip()
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(SECONDS_MAX) == 0


@pytest.mark.slow
def test_it_serves_a_cluster_until_it_is_stopped(broker: Broker) -> None:
    with registry(broker.bootstrap) as url:
        assert RestClient(url).register("s", '"string"').body == {"id": 1}
    with registry(broker.bootstrap) as url:
        assert RestClient(url).get("/subjects").body == ["s"]


@pytest.mark.slow
def test_it_serves_other_machines_when_told_that_the_network_is_safe(broker: Broker) -> None:
    with registry(broker.bootstrap, "--listen", "0.0.0.0:0", "--insecure") as url:
        assert RestClient(url).get("/").status == 200


@pytest.mark.slow
def test_a_login_and_tls(broker: Broker, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    authority = new_authority("Test authority", now=now, days=2)
    server = issue(authority, "localhost", hosts=("localhost", "127.0.0.1"), now=now, days=2)
    (tmp_path / "ca.pem").write_bytes(authority.certificate)
    (tmp_path / "server.pem").write_bytes(server.key + server.certificate)
    (tmp_path / "users").write_text("ann=secret\n")
    options = ("--users", str(tmp_path / "users"), "--certificate", str(tmp_path / "server.pem"))
    own = ("--topic", "_secured", "--group", "secured", "--authority", str(tmp_path / "ca.pem"))
    with (
        registry(broker.bootstrap, *options, *own) as url,
        registry(broker.bootstrap, *options, *own) as other,
    ):
        assert url.startswith("https://")
        trust = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        for login in (None, "ann:wrong", "bob:secret", "ann"):
            assert RestClient(url, login=login, trust=trust).get("/subjects").error_code == 401
        assert RestClient(url, login="ann:secret", trust=trust).get("/subjects").body == []
        settings = {"url": url, "ssl.ca.location": str(tmp_path / "ca.pem")}
        with SchemaRegistryClient({**settings, "basic.auth.user.info": "ann:secret"}) as client:
            assert client.register_schema("s", Schema('"int"', "AVRO")) == 1
        # One of the two is not the leader, and passes the request and its login on.
        for number, each in enumerate((url, other), 2):
            client_of_each = RestClient(each, login="ann:secret", trust=trust)
            schema = f'{{"type":"enum","name":"E{number}","symbols":["A"]}}'
            assert client_of_each.register(f"t{number}", schema).body == {"id": number}
        with (
            SchemaRegistryClient(settings) as stranger,
            pytest.raises(SchemaRegistryError, match="Unauthorized"),
        ):
            stranger.get_subjects()


@pytest.mark.parametrize(
    ("options", "code", "reason"),
    [
        (["--listen", "nowhere"], 2, "HOST:PORT"),
        (["--listen", "127.0.0.1:0", "--advertise", "nowhere"], 2, "--advertise"),
        (["--listen", "0.0.0.0:0"], 2, "no login (--users)"),
        (["--listen", "192.0.2.1:0", "--users", "missing"], 2, "no HTTPS (--certificate)"),
        (["--users", "missing"], 1, "missing: No such file"),
        (["--certificate", "missing.pem"], 1, "missing.pem"),
        (["--topic", "deleting"], 1, "cleanup.policy"),
        (["--topic", "wide"], 1, "exactly one"),
        (["--topic", "not a topic"], 1, "not a topic"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(
    broker: Broker, options: list[str], code: int, reason: str
) -> None:
    if "deleting" in options and "deleting" not in broker.topic_names():
        broker.create_topic("deleting")
    if "wide" in options and "wide" not in broker.topic_names():
        broker.create_topic("wide", partitions=2, configs={"cleanup.policy": "compact"})
    if "--listen" not in options:
        options = [*options, "--listen", "127.0.0.1:0"]
    ran = run_millstream("registry", *options, bootstrap=broker.bootstrap)
    assert ran.exit_code == code
    assert reason in ran.errors
    assert "Traceback" not in ran.errors


def test_a_port_in_use_is_said_in_a_line(broker: Broker) -> None:
    ran = run_millstream("registry", "--listen", broker.bootstrap, bootstrap=broker.bootstrap)
    assert ran.exit_code == 1
    assert "cannot listen on" in ran.errors
