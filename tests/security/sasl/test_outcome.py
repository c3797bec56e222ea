import pytest

from millstream.security.sasl.outcome import AuthenticationFailed, check_authorization_id


def test_a_user_may_only_act_as_itself():
    check_authorization_id("", "alice")
    check_authorization_id("alice", "alice")
    with pytest.raises(AuthenticationFailed):
        check_authorization_id("bob", "alice")
