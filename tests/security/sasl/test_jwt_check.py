"""Tokens that are right, and all the ways in which one can be wrong."""

import base64
import hashlib
import hmac
import json

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from millstream.security.sasl.jwt_check import (
    InvalidToken,
    TokenRules,
    UnknownKey,
    check_token,
    read_keys,
)
from tests.support.tokens import jwk, key_set

NOW_MS = 1_700_000_000_000
NOW = NOW_MS // 1000
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())
KEYS = read_keys(key_set(jwk(RSA, "r"), jwk(EC, "e")))
RULES = TokenRules(issuer="https://issuer", audiences=("kafka", "other"), clock_skew_seconds=30)
CLAIMS = {"iss": "https://issuer", "aud": "kafka", "sub": "alice", "exp": NOW + 60, "iat": NOW}


def signed(claims, *, key=RSA, algorithm="RS256", key_id="r"):
    return jwt.encode(claims, key, algorithm=algorithm, headers={"kid": key_id} if key_id else None)


def check(token, rules=RULES):
    return check_token(token, KEYS, rules, now_ms=NOW_MS)


@pytest.mark.parametrize("algorithm", ["RS256", "RS512", "PS256"])
def test_a_token_signed_with_rsa_is_accepted(algorithm):
    identity = check(signed(CLAIMS, algorithm=algorithm))
    assert (identity.user, identity.expires_at_ms) == ("alice", (NOW + 60 + 30) * 1000)


def test_a_token_signed_with_an_elliptic_curve_is_accepted():
    assert check(signed(CLAIMS, key=EC, algorithm="ES256", key_id="e")).user == "alice"


def test_a_token_without_a_key_id_is_accepted_where_one_key_fits():
    assert check(signed(CLAIMS, key_id=None)).user == "alice"
    assert check(signed(CLAIMS, key=EC, algorithm="ES256", key_id=None)).user == "alice"


def test_another_claim_may_name_the_user():
    rules = TokenRules("https://issuer", ("kafka",), 0, subject_claim="email")
    assert check(signed({**CLAIMS, "email": "a@b"}), rules).user == "a@b"


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "https://other"},
        {"iss": None},
        {"aud": "stranger"},
        {"aud": None},
        {"aud": []},
        {"exp": None},
        {"exp": NOW - 30},
        {"exp": "soon"},
        {"exp": True},
        {"exp": 1e300},
        {"nbf": NOW + 31},
        {"iat": NOW + 31},
        {"sub": None},
        {"sub": ""},
        {"sub": ["alice"]},
        {"scope": 7},
        {"scope": [7]},
    ],
)
def test_a_token_with_a_wrong_claim_is_refused(changes):
    claims = {name: value for name, value in {**CLAIMS, **changes}.items() if value is not None}
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=")
    header = base64.urlsafe_b64encode(b'{"alg":"RS256","kid":"r"}').rstrip(b"=")
    algorithm = jwt.algorithms.get_default_algorithms()["RS256"]
    signature = algorithm.sign(header + b"." + payload, RSA)
    token = b".".join((header, payload, base64.urlsafe_b64encode(signature).rstrip(b"=")))
    with pytest.raises(InvalidToken):
        check(token.decode())


def test_times_have_some_leeway():
    assert check(signed({**CLAIMS, "exp": NOW - 29, "nbf": NOW + 30, "iat": NOW + 30}))


def test_every_part_counts_for_the_signature():
    token = signed(CLAIMS)
    for position in range(0, len(token), 7):
        wrong = "B" if token[position] != "B" else "C"
        with pytest.raises(InvalidToken):
            check(token[:position] + wrong + token[position + 1 :])


def test_a_token_signed_with_another_key_is_refused():
    with pytest.raises(InvalidToken, match="Signature"):
        check(signed(CLAIMS, key=OTHER_RSA))
    with pytest.raises(UnknownKey):
        check(signed(CLAIMS, key=OTHER_RSA, key_id="new"))


def test_the_key_decides_the_algorithm():
    none = jwt.encode(CLAIMS, None, algorithm="none", headers={"kid": "r"})
    with pytest.raises(InvalidToken):
        check(none)
    # The public key as the secret of a keyed hash, which everybody could compute.
    for secret in (key_set(jwk(RSA, "r")).encode(), b"r"):
        head = base64.urlsafe_b64encode(b'{"alg":"HS256","kid":"r"}').rstrip(b"=")
        body = base64.urlsafe_b64encode(json.dumps(CLAIMS).encode()).rstrip(b"=")
        mac = hmac.digest(secret, head + b"." + body, hashlib.sha256)
        token = b".".join((head, body, base64.urlsafe_b64encode(mac).rstrip(b"=")))
        with pytest.raises(InvalidToken, match="algorithm"):
            check(token.decode())
    with pytest.raises(InvalidToken, match="algorithm"):
        check(signed(CLAIMS, key_id="e"))


def test_a_key_that_names_its_algorithm_is_good_for_no_other():
    keys = read_keys(key_set({**jwk(RSA, "r"), "alg": "RS256"}))
    assert check_token(signed(CLAIMS), keys, RULES, now_ms=NOW_MS)
    with pytest.raises(InvalidToken, match="algorithm"):
        check_token(signed(CLAIMS, algorithm="PS256"), keys, RULES, now_ms=NOW_MS)


@pytest.mark.parametrize("token", ["", "a", "a.b.c", "....", "e30.e30.e30"])
def test_what_is_no_token_is_refused(token):
    with pytest.raises(InvalidToken):
        check(token)


def test_keys_of_other_kinds_are_left_out():
    secret = {"kty": "oct", "k": "c2VjcmV0", "kid": "s"}
    encryption = {**jwk(OTHER_RSA, "x"), "use": "enc"}
    (key,) = read_keys(key_set(secret, encryption, jwk(RSA, "r")))
    assert key.key_id == "r"


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "{}", '{"keys": []}', '{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}'],
)
def test_a_key_set_without_usable_keys_is_refused(text):
    with pytest.raises(ValueError):
        read_keys(text)


def test_small_rsa_keys_are_refused():
    small = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    with pytest.raises(ValueError, match="2048"):
        read_keys(key_set(jwk(small, "s")))
