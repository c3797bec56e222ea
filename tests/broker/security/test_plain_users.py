import os
from pathlib import Path

import pytest

from millstream.broker.security.plain_users import PlainUsers, users_of
from millstream.config import ConfigError
from millstream.security.sasl.jaas import parse_jaas
from millstream.security.sasl.plain import HASHED_WITH, PlainLogin, matches
from millstream.security.sasl.scram import ScramCredential, encode_credential, new_credential

HASHED = encode_credential(new_credential(HASHED_WITH, "b", salt=b"salt", iterations=5000))


def test_users_of_a_jaas_line():
    module = parse_jaas('PlainLoginModule required username="n" user_n="p" user_a="b";')
    assert users_of(module) == {"n": "p", "a": "b"}


def test_a_file_is_read_again_when_it_changes(tmp_path: Path, caplog):
    file = tmp_path / "users"
    file.write_text("a=1\nb=2\n")
    users = PlainUsers({"a": "own"}, file)
    assert (users.find("a"), users.find("b"), users.find("c")) == ("own", "2", None)
    assert not users.reload()
    file.write_text("b=3\nc=4\n")
    os.utime(file, ns=(1, 1))
    assert users.reload()
    assert (users.find("a"), users.find("b"), users.find("c")) == ("own", "3", "4")
    file.write_text("hidden\n")
    os.utime(file, ns=(2, 2))
    assert not users.reload()
    assert users.find("c") == "4"
    assert "line 1 is not name=password" in caplog.text
    assert "hidden" not in caplog.text
    file.unlink()
    assert not users.reload()
    assert users.find("c") == "4"


def test_a_file_that_cannot_be_read_stops_the_start(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"sasl\.plain\.users\.file: .*No such file"):
        PlainUsers({}, tmp_path / "users")


def test_a_stranger_costs_as_much_as_most_users(tmp_path: Path):
    file = tmp_path / "users"
    file.write_text(f"a={HASHED}\nb={HASHED}\nc=plain\n")
    decoy = PlainUsers({}, file).decoy
    assert isinstance(decoy, ScramCredential)
    assert decoy.iterations == 5000
    assert not matches(PlainLogin("x", "b"), decoy)
    assert isinstance(PlainUsers({"a": "b"}, None).decoy, str)
