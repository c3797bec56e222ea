import asyncio
import base64
from pathlib import Path

import pytest

from millstream.errors import StartError
from millstream.registry.users import load_users
from millstream.security.sasl.scram import encode_credential, new_credential


def header(login: str) -> str:
    return f"Basic {base64.b64encode(login.encode()).decode()}"


def allowed(file: Path, *headers: str) -> list[bool]:
    users = load_users(file)

    async def ask() -> list[bool]:
        return [await users.has(each) for each in headers]

    return asyncio.run(ask())


def test_a_login_is_a_name_and_its_password(tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text("# people\nann=secret\nbob=with:colon\n")
    right = [header("ann:secret"), header("ann:secret"), header("bob:with:colon")]
    assert allowed(file, *right, "basic" + right[0][5:]) == [True] * 4
    wrong = [header("ann:other"), header("eve:secret"), header("ann"), header(""), ""]
    others = ["Basic", "Basic !", "Bearer x", "Basic /w=="]
    assert not any(allowed(file, *wrong, *others))


def test_passwords_may_be_hashed(tmp_path: Path) -> None:
    file = tmp_path / "users"
    hashed = new_credential("SCRAM-SHA-256", "secret", salt=b"12345678", iterations=4096)
    file.write_text(f"ann={encode_credential(hashed)}\n")
    assert allowed(file, header("ann:secret"), header("ann:other")) == [True, False]


@pytest.mark.parametrize("text", ["", "# nobody\n", "ann\n", "ann=\n", "ann=a\nann=b\n"])
def test_a_file_without_users_or_with_mistakes_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "users"
    file.write_text(text)
    with pytest.raises(StartError, match="users"):
        load_users(file)
    with pytest.raises(StartError, match="No such file"):
        load_users(tmp_path / "missing")
