"""`millstream zookeeper`: the credential that it creates. Many other tests use its server."""

from pathlib import Path

from millstream.cli.zookeeper import digest_file


def test_the_credential_is_created_once_and_for_its_owner_only(tmp_path: Path) -> None:
    path = digest_file(tmp_path / "new")
    text = path.read_text()
    user, colon, password = text.strip().partition(":")
    assert (user, colon) == ("millstream", ":")
    assert len(password) == 32
    assert path.stat().st_mode & 0o777 == 0o600
    assert digest_file(tmp_path / "new").read_text() == text
