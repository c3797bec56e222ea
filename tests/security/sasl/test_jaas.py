import pytest

from millstream.security.sasl.jaas import parse_jaas


@pytest.mark.parametrize(
    ("text", "name", "options"),
    [
        (
            'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" '
            'password="b" user_a="b" user_c="d;e";',
            "PlainLoginModule",
            {"username": "a", "password": "b", "user_a": "b", "user_c": "d;e"},
        ),
        (
            'ScramLoginModule REQUIRED\n  username=\'x y\' password="q\\"\\\\" tokenauth=true ;',
            "ScramLoginModule",
            {"username": "x y", "password": 'q"\\', "tokenauth": "true"},
        ),
        ("OAuthBearerLoginModule required ;", "OAuthBearerLoginModule", {}),
    ],
)
def test_a_line_is_read(text, name, options):
    module = parse_jaas(text)
    assert (module.name, module.options) == (name, options)
    assert "password" not in repr(module)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "PlainLoginModule",
        'PlainLoginModule required username="hidden"',
        'PlainLoginModule maybe username="hidden";',
        'PlainLoginModule required username="hidden;',
        'PlainLoginModule required "hidden";',
        'PlainLoginModule required a="b"c="hidden";',
    ],
)
def test_what_cannot_be_read_is_not_repeated(text):
    with pytest.raises(ValueError) as caught:
        parse_jaas(text)
    assert "hidden" not in str(caught.value)
