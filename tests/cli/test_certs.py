import json
import stat
from pathlib import Path

import pytest

from millstream.security.certificate_authority import read_certificates
from tests.support.command_line import run_millstream


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run_millstream("secure", str(tmp_path / "made"))
    return tmp_path / "made"


def facts(path: Path):
    return read_certificates(path.read_bytes())[0]


def test_all_certificates_of_a_directory_are_shown(folder: Path) -> None:
    output = run_millstream("certs", "show", str(folder)).output
    assert "CN=Millstream CA" in output
    assert f"{facts(folder / 'server.pem').serial:x}" in output
    shown = json.loads(run_millstream("certs", "show", "--json", str(folder)).output)
    assert [Path(each["file"]).name for each in shown] == ["ca.pem", "server.pem"]
    assert [each["is_authority"] for each in shown] == [True, False]


def test_client_and_server_certificates_are_issued(folder: Path) -> None:
    run_millstream("certs", "issue", str(folder), "alice, with a comma")
    made = facts(folder / "alice, with a comma.pem")
    assert (made.common_name, made.hosts) == ("alice, with a comma", ())
    run_millstream("certs", "issue", str(folder), "web", "--host", "web.example", "--days", "7")
    assert facts(folder / "web.pem").hosts == ("web.example",)
    assert stat.S_IMODE((folder / "web.pem").stat().st_mode) == 0o600


def test_a_renewed_certificate_keeps_its_name_and_hosts(folder: Path) -> None:
    run_millstream("certs", "issue", str(folder), "a,b", "--host", "a.example")
    before = facts(folder / "a,b.pem")
    run_millstream("certs", "renew", str(folder), "a,b")
    after = facts(folder / "a,b.pem")
    assert (after.common_name, after.hosts) == (before.common_name, before.hosts)
    assert after.serial != before.serial
    assert stat.S_IMODE((folder / "a,b.pem").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("issue", "DIR", "server"), "exists; `millstream certs renew`"),
        (("issue", "DIR", "../x"), "cannot be the name of a file"),
        (("renew", "DIR", "nobody"), "`millstream certs issue` creates one"),
        (("renew", "DIR", "ca"), "is a CA"),
        (("show", "DIR/client.properties"), "has no certificate in PEM"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    folder: Path, arguments: tuple[str, ...], message: str
) -> None:
    given = [part.replace("DIR", str(folder)) for part in arguments]
    result = run_millstream("certs", *given)
    assert result.exit_code != 0
    assert message in result.errors


def test_without_a_ca_nothing_is_issued(tmp_path: Path) -> None:
    result = run_millstream("certs", "issue", str(tmp_path), "x")
    assert "`millstream secure DIR` creates one" in result.errors
