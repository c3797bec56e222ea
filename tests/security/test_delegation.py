import pytest

from millstream.errors import KafkaCode, KafkaError
from millstream.security.delegation import Lifetimes, expired, new_token, renewed, token_hmac

LIFETIMES = Lifetimes(expiry_ms=10, max_ms=100)
TOKEN = new_token("id", "User:a", "User:q", ["User:b"], LIFETIMES, max_lifetime_ms=-1, now_ms=1000)


def test_a_token_has_the_lifetimes_of_the_node_or_shorter_ones():
    assert (TOKEN.expires_at_ms, TOKEN.max_at_ms) == (1010, 1100)
    for wanted, expires, longest in ((5, 1005, 1005), (50, 1010, 1050), (500, 1010, 1100)):
        token = new_token(
            "id", "User:a", "User:a", [], LIFETIMES, max_lifetime_ms=wanted, now_ms=1000
        )
        assert (token.expires_at_ms, token.max_at_ms) == (expires, longest)


def test_the_longest_lifetime_ends_where_a_response_can_still_hold_it():
    longest = Lifetimes(expiry_ms=2**63 - 1, max_ms=2**63 - 1)
    token = new_token("id", "User:a", "User:a", [], longest, max_lifetime_ms=-1, now_ms=1000)
    assert (token.expires_at_ms, token.max_at_ms) == (2**63 - 1, 2**63 - 1)


def test_its_owner_and_its_renewers_renew_it_up_to_the_end():
    for principal in ("User:a", "User:b"):
        token = renewed(TOKEN, principal, LIFETIMES, period_ms=-1, now_ms=1005)
        assert token.expires_at_ms == 1015
    assert renewed(TOKEN, "User:a", LIFETIMES, period_ms=500, now_ms=1005).expires_at_ms == 1100


def test_it_ends_at_once_or_earlier():
    assert expired(TOKEN, "User:b", period_ms=-1, now_ms=1005) is None
    assert expired(TOKEN, "User:a", period_ms=2, now_ms=1005).expires_at_ms == 1007


@pytest.mark.parametrize(
    ("principal", "now_ms", "code"),
    [
        ("User:c", 1005, KafkaCode.DELEGATION_TOKEN_OWNER_MISMATCH),
        ("User:a", 1010, KafkaCode.DELEGATION_TOKEN_EXPIRED),
    ],
)
def test_nobody_else_and_not_too_late(principal, now_ms, code):
    for change in (
        lambda: renewed(TOKEN, principal, LIFETIMES, period_ms=5, now_ms=now_ms),
        lambda: expired(TOKEN, principal, period_ms=5, now_ms=now_ms),
    ):
        with pytest.raises(KafkaError) as caught:
            change()
        assert caught.value.code is code


def test_the_hmac_depends_on_the_secret_and_the_token():
    made = {token_hmac(secret, token) for secret in ("s", "t") for token in ("a", "b")}
    assert len(made) == 4
    assert {len(each) for each in made} == {64}
