"""What the doctor says about the machine and the broker."""

import socket
from pathlib import Path

import pytest

from millstream.cli import doctor_node
from millstream.cli.doctor_node import (
    Finding,
    check_broker,
    check_descriptors,
    check_disk,
    check_port,
    file_system_of,
)
from tests.support.broker import Broker
from tests.support.ports import reserve_port

_MOUNTS = """\
/dev/sda1 / ext4 rw 0 0
tmpfs /tmp tmpfs rw 0 0
/dev/sdb1 /mnt/my\\040disk xfs rw 0 0
"""


def test_a_file_system_is_that_of_the_deepest_mount() -> None:
    assert file_system_of(Path("/var/lib"), _MOUNTS) == "ext4"
    assert file_system_of(Path("/tmp/a/b"), _MOUNTS) == "tmpfs"
    assert file_system_of(Path("/tmpfiles"), _MOUNTS) == "ext4"
    assert file_system_of(Path("/mnt/my disk/x"), _MOUNTS) == "xfs"


def test_a_directory_that_does_not_exist_yet_is_judged_by_its_parent(tmp_path: Path) -> None:
    space, *_ = check_disk(tmp_path / "not" / "yet")
    assert str(tmp_path) in space.text


def test_too_little_space_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_node, "_FREE_BYTES_MIN", 1 << 80)
    assert not check_disk(tmp_path)[0].is_good


def test_too_few_descriptors_are_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda which: (100, 200))
    [finding] = check_descriptors()
    assert (finding.is_good, "LimitNOFILE" in finding.text) == (False, True)
    monkeypatch.setattr("resource.getrlimit", lambda which: (100, 200_000))
    assert check_descriptors()[0].is_good


def test_a_port_in_use_is_a_problem_with_its_holder() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        [finding] = check_port(server.getsockname()[1], is_broker=False)
        assert (finding.is_good, "--port 0" in finding.text) == (False, True)
    assert check_port(reserve_port(), is_broker=False)[0].is_good


def test_an_absent_broker_is_a_problem_only_if_one_was_named() -> None:
    address = f"127.0.0.1:{reserve_port()}"
    assert not check_broker(address, is_required=True)[0].is_good
    assert all(finding.is_good for finding in check_broker(address, is_required=False))


def test_an_advertised_address_that_cannot_be_reached_is_a_problem() -> None:
    with Broker() as broker:
        assert all(finding.is_good for finding in check_broker(broker.bootstrap, is_required=True))
    wrong = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{reserve_port()}"}
    with Broker(settings=wrong) as broker:
        answers, advertised = check_broker(broker.bootstrap, is_required=True)
    assert answers.is_good
    assert not advertised.is_good
    assert "advertised.listeners" in advertised.text


def test_a_jail_without_proc_is_no_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_node, "_MOUNTS", tmp_path / "absent")
    assert check_disk(tmp_path)[-1] == Finding("file system", True, "unknown")
