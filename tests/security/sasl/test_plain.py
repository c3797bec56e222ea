import pytest

from millstream.security.sasl.outcome import AuthenticationFailed
from millstream.security.sasl.plain import HASHED_WITH, PlainLogin, matches, read_plain, read_users
from millstream.security.sasl.scram import encode_credential, new_credential


@pytest.mark.parametrize("message", [b"\0alice\0secret", b"alice\0alice\0secret"])
def test_a_name_and_a_password_are_read(message):
    assert read_plain(message) == PlainLogin("alice", "secret")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"alice",
        b"\0alice",
        b"\0\0secret",
        b"\0alice\0",
        b"bob\0alice\0secret",
        b"\0alice\0secret\0",
        b"\0\xff\0secret",
    ],
)
def test_everything_else_fails_and_repeats_no_secret(message):
    with pytest.raises(AuthenticationFailed) as caught:
        read_plain(message)
    assert "secret" not in str(caught.value)


def test_passwords_are_compared_written_out_or_hashed():
    hashed = new_credential(HASHED_WITH, "secret", salt=b"salt", iterations=4096)
    for stored in ("secret", hashed):
        assert matches(PlainLogin("alice", "secret"), stored)
        for wrong in ("Secret", "secre", "secrets", "ſecret"):
            assert not matches(PlainLogin("alice", wrong), stored)


def test_a_file_has_a_user_per_line():
    hashed = new_credential(HASHED_WITH, "b", salt=b"salt", iterations=4096)
    text = f"# users\n\nalice = a=b\nbob={encode_credential(hashed)}\n"
    assert read_users(text) == {"alice": "a=b", "bob": hashed}


@pytest.mark.parametrize("line", ["alice", "=secret", "alice=", "alice=a\nalice=secret"])
def test_a_line_that_is_wrong_is_named_by_its_number(line):
    with pytest.raises(ValueError, match="line ") as caught:
        read_users(line)
    assert "secret" not in str(caught.value)


def test_a_password_is_not_in_the_text_of_a_login():
    assert "secret" not in repr(PlainLogin("alice", "secret"))
