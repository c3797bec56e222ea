"""`millstream user` on a secured node, and other commands with the options of a client."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker import Broker
from tests.support.command_line import Ran, run_millstream
from tests.support.raw_client import RawClient
from tests.support.sasl_node import PASSWORD, PLAIN_USER, SCRAM_USER, log_in_scram, sasl_node

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def node() -> Iterator[Broker]:
    with sasl_node() as running:
        yield running


@pytest.fixture(scope="module")
def admin(node: Broker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("client") / "client.properties"
    file.write_text(
        f"bootstrap.servers={node.bootstrap}\nsecurity.protocol=SASL_PLAINTEXT\n"
        "sasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config=ScramLoginModule required "
        f'username="{SCRAM_USER}" password="{PASSWORD}";\n'
    )
    return file


@pytest.fixture
def password(tmp_path: Path) -> Path:
    file = tmp_path / "password"
    file.write_text("first one\n")
    return file


def user(admin: Path, *arguments: str) -> Ran:
    return run_millstream("user", *arguments, "--config", str(admin))


def code_of(node: Broker, name: str, password: str) -> int:
    with RawClient(node.bootstrap) as client:
        return log_in_scram(client, name, password, "SCRAM-SHA-512").error_code


def test_a_user_is_added_changed_listed_and_deleted(
    node: Broker, admin: Path, password: Path
) -> None:
    file = ["--password-file", str(password)]
    added = user(admin, "add", "alice", *file)
    assert (added.exit_code, added.errors) == (0, "added user alice (SCRAM-SHA-512)\n")
    assert code_of(node, "alice", "first one") == 0
    again = user(admin, "add", "alice", *file)
    assert again.exit_code == 1
    assert "millstream user password" in again.errors
    password.write_text("second")
    assert user(admin, "password", "alice", *file, "--iterations", "4096").exit_code == 0
    assert code_of(node, "alice", "first one") != 0
    assert code_of(node, "alice", "second") == 0
    listed = json.loads(user(admin, "list", "--json").output)
    assert {"user": "alice", "mechanism": "SCRAM-SHA-512", "iterations": 4096} in listed
    assert "alice" in user(admin, "list").output
    assert user(admin, "delete", "alice").exit_code == 1
    assert user(admin, "delete", "alice", "-y").exit_code == 0
    assert code_of(node, "alice", "second") != 0
    assert "does not exist" in user(admin, "delete", "alice", "-y").errors


def test_every_command_takes_the_options_of_a_client(
    node: Broker, admin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = run_millstream("topic", "create", "t", "--command-config", str(admin))
    assert made.exit_code == 0
    options = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": PLAIN_USER,
        "sasl.password": "${env:OWN_PASSWORD}",
    }
    monkeypatch.setenv("OWN_PASSWORD", PASSWORD)
    settings = [word for name, value in options.items() for word in ("-X", f"{name}={value}")]
    sent = run_millstream("produce", "t", *settings, stdin="hello\n", bootstrap=node.bootstrap)
    assert sent.exit_code == 0
    for arguments in (["--config", str(admin)], ["-b", node.bootstrap, *settings]):
        got = run_millstream("consume", "t", "-n", "1", *arguments)
        assert got.output == "hello\n"
        assert run_millstream("cluster", "describe", *arguments).exit_code == 0


def test_a_wrong_password_is_an_error_that_says_so(admin: Path, tmp_path: Path) -> None:
    file = tmp_path / "wrong.properties"
    file.write_text(admin.read_text().replace(PASSWORD, "hidden"))
    ran = user(file, "list")
    assert ran.exit_code == 1
    assert "invalid credentials" in ran.errors
    assert "sasl.jaas.config" in ran.errors
    assert "hidden" not in ran.errors


def test_without_a_password_nothing_is_done(admin: Path, monkeypatch) -> None:
    ran = user(admin, "add", "bob")
    assert ran.exit_code == 2
    assert "MILLSTREAM_USER_PASSWORD" in ran.errors
    monkeypatch.setitem(os.environ, "MILLSTREAM_USER_PASSWORD", "x")
    assert user(admin, "add", "bob").exit_code == 0


def test_a_hashed_password_is_for_the_file_of_plain(password: Path, tmp_path: Path) -> None:
    hashed = run_millstream("user", "hash", "--password-file", str(password)).output.strip()
    assert hashed.startswith("salt=")
    users = tmp_path / "users"
    users.write_text(f"carl={hashed}\n")
    with sasl_node("PLAIN", sasl__plain__users__file=str(users)) as node:
        settings = (
            "security.protocol=SASL_PLAINTEXT",
            "sasl.mechanism=PLAIN",
            "sasl.username=carl",
            f"sasl.password=${{file:{password}}}",
        )
        options = [word for each in settings for word in ("-X", each)]
        ran = run_millstream("topic", "list", *options, bootstrap=node.bootstrap)
        assert ran.exit_code == 0
