"""Options that do not fit together stop the start, in one line that says what to do."""

import pytest

from millstream.config import ConfigError
from tests.support.sasl_node import sasl_node

PLAIN_JAAS = "listener.name.sasl_plaintext.plain.sasl.jaas.config"


@pytest.mark.parametrize(
    ("mechanisms", "options", "problem"),
    [
        (["GSSAPI"], {}, "GSSAPI; this node knows PLAIN"),
        (["PLAIN"], {"sasl__plain__allow__without__tls": "false"}, "passwords in the clear"),
        (["PLAIN"], {PLAIN_JAAS: "PlainLoginModule hidden"}, f"{PLAIN_JAAS}: not of the form"),
        (["PLAIN"], {PLAIN_JAAS: ""}, "PLAIN has no users"),
        (["PLAIN"], {"sasl__plain__users__file": "/no/such"}, "/no/such: No such file"),
        (["OAUTHBEARER"], {}, "OAUTHBEARER needs sasl.oauthbearer.expected.issuer"),
        (
            ["SCRAM-SHA-256"],
            {"sasl__scram__initial__users": "SCRAM-SHA-256=[name=a,password=hidden"},
            "sasl.scram.initial.users: entry 1",
        ),
    ],
)
def test_a_start_is_refused(mechanisms, options, problem):
    with pytest.raises(ConfigError) as caught, sasl_node(*mechanisms, **options):
        pass
    assert problem in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_without_a_mechanism_a_listener_is_of_no_use():
    with pytest.raises(ConfigError, match="has none"), sasl_node(sasl__enabled__mechanisms=""):
        pass
