import pytest

from millstream.errors import KafkaCode, KafkaError
from millstream.security.sasl.scram import decode_credential, new_credential, salted_password
from millstream.security.sasl.scram_changes import Deletion, Upsertion, decide_changes

SHA_256 = "SCRAM-SHA-256"


def upsertion(user="u", number=1, iterations=4096, salt=b"salt", salted=bytes(32)):
    return Upsertion(user, number, iterations, salt, salted)


def test_a_salted_password_becomes_what_the_server_stores():
    salted = salted_password(SHA_256, "pencil", b"salt", 4096)
    (decided,) = decide_changes([upsertion(salted=salted)], {}).values()
    expected = new_credential(SHA_256, "pencil", salt=b"salt", iterations=4096)
    assert decode_credential(decided[SHA_256]) == expected


def test_both_mechanisms_of_a_user_change_together():
    changes = [Deletion("u", 1), upsertion(number=2, salted=bytes(64)), Deletion("v", 1)]
    decided = decide_changes(changes, {"u": [SHA_256], "v": ["SCRAM-SHA-512"]})
    assert decided["u"][SHA_256] is None
    assert decided["u"]["SCRAM-SHA-512"].startswith("salt=")
    assert decided["v"].code is KafkaCode.RESOURCE_NOT_FOUND


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([upsertion(user="")], KafkaCode.UNACCEPTABLE_CREDENTIAL),
        ([upsertion(number=0)], KafkaCode.UNSUPPORTED_SASL_MECHANISM),
        ([Deletion("u", 3)], KafkaCode.UNSUPPORTED_SASL_MECHANISM),
        ([upsertion(iterations=4095)], KafkaCode.UNACCEPTABLE_CREDENTIAL),
        ([upsertion(iterations=16385)], KafkaCode.UNACCEPTABLE_CREDENTIAL),
        ([upsertion(salt=b"")], KafkaCode.UNACCEPTABLE_CREDENTIAL),
        ([upsertion(salted=b"short")], KafkaCode.UNACCEPTABLE_CREDENTIAL),
        ([Deletion("u", 1), upsertion()], KafkaCode.DUPLICATE_RESOURCE),
        ([upsertion(), upsertion(number=9)], KafkaCode.UNSUPPORTED_SASL_MECHANISM),
    ],
)
def test_after_an_error_nothing_is_changed_for_the_user(changes, code):
    ((_, decided),) = decide_changes(changes, {"u": [SHA_256]}).items()
    assert isinstance(decided, KafkaError)
    assert decided.code is code
    # Else each would hold the request in memory.
    assert decided.__traceback__ is None


def test_a_salted_password_is_not_in_the_text_of_a_change():
    assert "hidden" not in repr(upsertion(salted=b"hidden"))
