import json

import pytest

from millstream.security.sasl.oauthbearer import REFUSAL, BearerLogin, read_initial
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
    ],
)
def test_everything_else_fails(message):
    with pytest.raises(AuthenticationFailed) as caught:
        read_initial(message)
    assert "secret" not in str(caught.value)


def test_a_refusal_is_json():
    assert json.loads(REFUSAL) == {"status": "invalid_token"}


def test_a_token_is_not_in_the_text_of_a_login():
    assert "secret" not in repr(BearerLogin("secret", ""))
