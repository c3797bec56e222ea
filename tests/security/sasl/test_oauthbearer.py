import json

import pytest

from millstream.security.sasl.oauthbearer import (
    MESSAGE_BYTES_MAX,
    PAIRS_MAX,
    REFUSAL,
    BearerLogin,
    read_initial,
)
from millstream.security.sasl.outcome import AuthenticationFailed


@pytest.mark.parametrize(
    ("message", "authorization_id"),
    [
        (b"n,,\x01auth=Bearer a.b-c_\x01\x01", ""),
        (b"n,a=al=2Cice,\x01auth=bearer  a.b-c_\x01\x01", "al,ice"),
        (b"n,,\x01host=h\x01auth=Bearer a.b-c_\x01trace=x y\x01\x01", ""),
    ],
)
def test_a_token_is_read(message, authorization_id):
    assert read_initial(message) == BearerLogin("a.b-c_", authorization_id)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01host=h\x01\x01",
        b"n,,\x01auth=Basic secret\x01\x01",
        b"n,,\x01auth=Bearer secret\x01",
        b"n,,\x01auth=Bearer sec ret\x01\x01",
        b"n,,\x01auth=Bearer secret\x01auth=Bearer secret\x01\x01",
        b"y,,\x01auth=Bearer secret\x01\x01",
        b"n,,\x01au1th=x\x01auth=Bearer secret\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
        b"n,a=al=ice,\x01auth=Bearer secret\x01\x01",
        b"n,a=alice=2,\x01auth=Bearer secret\x01\x01",
    ],
)
def test_everything_else_fails(message):
    with pytest.raises(AuthenticationFailed) as caught:
        read_initial(message)
    assert "secret" not in str(caught.value)


def test_a_message_of_the_largest_size_is_read_and_a_larger_one_is_not():
    start, end = b"n,,\x01auth=Bearer ", b"\x01\x01"
    token = b"a" * (MESSAGE_BYTES_MAX - len(start) - len(end))
    assert read_initial(start + token + end).token == token.decode()
    with pytest.raises(AuthenticationFailed, match="not a message of OAUTHBEARER"):
        read_initial(start + token + b"a" + end)


def test_a_message_has_so_many_pairs_and_no_more():
    start, end = b"n,,\x01auth=Bearer token\x01", b"\x01"
    assert read_initial(start + b"a=\x01" * (PAIRS_MAX - 1) + end).token == "token"
    with pytest.raises(AuthenticationFailed, match="not a message of OAUTHBEARER"):
        read_initial(start + b"a=\x01" * PAIRS_MAX + end)


def test_a_refusal_is_json():
    assert json.loads(REFUSAL) == {"status": "invalid_token"}


def test_a_token_is_not_in_the_text_of_a_login():
    assert "secret" not in repr(BearerLogin("secret", ""))
