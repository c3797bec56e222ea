from pathlib import Path

import pytest

from millstream.testing.credentials import Credentials, secured_settings


def test_files_are_private_and_passwords_differ(tmp_path: Path) -> None:
    one = Credentials.make("sasl_ssl", tmp_path)
    assert one.server_file is not None
    assert one.server_file.stat().st_mode & 0o077 == 0
    assert one.password != Credentials.make("sasl_plaintext", tmp_path).password


def test_without_security_nothing_is_set() -> None:
    assert secured_settings(None) == {}


def test_an_unknown_protocol_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="ssl, sasl_ssl, sasl_plaintext"):
        Credentials.make("kerberos", tmp_path)
