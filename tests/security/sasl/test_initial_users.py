import pytest

from millstream.security.sasl.initial_users import InitialUser, parse_initial_users


def test_users_are_read():
    text = (
        "SCRAM-SHA-512=[name=admin,password=a=b c];\n "
        'SCRAM-SHA-256=[iterations=8192,name="a,b",password="x]\\"y"] '
    )
    assert parse_initial_users(text) == [
        InitialUser("SCRAM-SHA-512", "admin", "a=b c", 4096),
        InitialUser("SCRAM-SHA-256", "a,b", 'x]"y', 8192),
    ]
    assert parse_initial_users("  ") == []


@pytest.mark.parametrize(
    "text",
    [
        "admin:hidden",
        "PLAIN=[name=a,password=hidden]",
        "SCRAM-SHA-512=[name=a]",
        "SCRAM-SHA-512=[name=a,password=hidden,salt=b]",
        "SCRAM-SHA-512=[name=a,password=hidden,iterations=4095]",
        "SCRAM-SHA-512=[name=a,password=hidden,iterations=many]",
        "SCRAM-SHA-512=[name=a,password=hidden];x",
    ],
)
def test_what_cannot_be_read_repeats_no_password(text):
    with pytest.raises(ValueError) as caught:
        parse_initial_users(text)
    assert "hidden" not in str(caught.value)


def test_a_password_is_not_in_the_text_of_a_user():
    assert "hidden" not in repr(InitialUser("SCRAM-SHA-512", "a", "hidden", 4096))
