"""The doctor names each thing that keeps Spark from the data source, and what to do."""

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from millstream.cli import doctor as module
from millstream.cli.doctor import doctor


def write_program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("said", "is_good", "text"),
    [
        ('openjdk version "17.0.9" 2023', True, "17"),
        ('openjdk version "21" 2023', True, "21"),
        ('java version "1.8.0_292"', False, "Java 8"),
        ("no idea", False, "JAVA_HOME"),
    ],
)
def test_java_must_be_new_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, is_good: bool, text: str
) -> None:
    write_program(tmp_path / "bin" / "java", f"echo '{said}' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    [finding] = module.check_java()
    assert finding.is_good is is_good
    assert text in finding.text


@pytest.mark.parametrize(("version", "is_good"), [("21.0.2", True), ("11.0.1", False)])
def test_the_release_file_of_a_jdk_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, is_good: bool
) -> None:
    write_program(tmp_path / "bin" / "java", f"touch {tmp_path}/started")
    (tmp_path / "release").write_text(f'IMPLEMENTOR="Somebody"\nJAVA_VERSION="{version}"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    [finding] = module.check_java()
    assert finding.is_good is is_good
    assert version.partition(".")[0] in finding.text
    assert not (tmp_path / "started").exists()


def test_java_that_is_not_there_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    [finding] = module.check_java()
    assert not finding.is_good


def test_another_python_for_the_workers_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = write_program(tmp_path / "python3", "echo \"No module named 'pyarrow'\"")
    monkeypatch.setenv("PYSPARK_PYTHON", str(other))
    [finding] = module.check_worker_python()
    assert not finding.is_good
    assert f"PYSPARK_PYTHON={sys.executable}" in finding.text
    monkeypatch.setenv("PYSPARK_PYTHON", str(tmp_path / "absent"))
    [finding] = module.check_worker_python()
    assert not finding.is_good


def test_this_python_needs_no_other_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setattr(module, "_output", lambda command: pytest.fail("it was started"))
    [finding] = module.check_worker_python()
    assert finding.is_good


def test_a_neighbour_that_fails_on_import_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyspark_broken_neighbour.py").write_text("raise RuntimeError('no licence')")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = {finding.what: finding for finding in module.check_neighbours()}
    assert found["pyspark_millstream"].is_good
    broken = found["pyspark_broken_neighbour"]
    assert not broken.is_good
    assert "no licence" in broken.text


def test_versions_of_libraries_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"pyarrow": "21.0", "pandas": "3.0.1", "protobuf": "5.29.0", "pyspark": "3.5.1"}
    monkeypatch.setattr(module, "_version", versions.get)
    assert [finding.is_good for finding in module.check_libraries()] == [True, False, False]
    assert not module.check_pyspark()[0].is_good
    monkeypatch.setattr(module, "_version", lambda name: None)
    assert "millstream[spark]" in module.check_pyspark()[0].text


def test_what_is_not_compiled_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.broker.network.receiving.NAME", "pure Python")
    found = {finding.what: finding for finding in module.check_compiled()}
    receiving = found["receiving from clients"]
    assert not receiving.is_good
    assert "C compiler" in receiving.text


def test_without_spark_nothing_is_said_about_what_only_spark_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_version", lambda name: None)
    [finding] = module.check_spark()
    assert finding.is_good
    assert "millstream[spark]" in finding.text


def test_the_command_fails_when_a_check_does(monkeypatch: pytest.MonkeyPatch) -> None:
    good = module.Finding("one", True, "1.0")
    monkeypatch.setattr(module, "CHECKS", (lambda: [good],))
    monkeypatch.setattr(module, "check_disk", lambda data_dir: [])
    monkeypatch.setattr(module, "check_broker", lambda bootstrap, is_required: [])
    done = CliRunner().invoke(doctor, ["--json"])
    assert json.loads(done.stdout) == [{"check": "one", "ok": True, "text": "1.0"}]
    bad = module.Finding("two", False, "do this")
    monkeypatch.setattr(module, "CHECKS", (lambda: [good, bad],))
    failed = CliRunner().invoke(doctor, [])
    assert failed.exit_code != 0
    assert "PROBLEM" in failed.stdout
