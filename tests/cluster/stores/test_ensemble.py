import pytest

from millstream.cluster.stores.ensemble import SaslLogin, ensemble_of
from millstream.config import ConfigError, load_config


def ensemble(*sets):
    return ensemble_of(load_config(sets=sets))


def test_a_node_without_an_ensemble_is_alone():
    assert ensemble() is None
    assert ensemble("zookeeper.connect=") is None


def test_hosts_and_the_path_below_which_everything_is():
    found = ensemble("zookeeper.connect=a:2181,b:1,c/some/where/")
    assert (found.hosts, found.root) == ("a:2181,b:1,c", "/some/where")
    assert (found.session_timeout_ms, found.connect_timeout_ms) == (18_000, 18_000)
    assert ensemble("zookeeper.connect=a:1").root == ""


def test_what_protects_the_way_there():
    found = ensemble(
        "zookeeper.connect=a:1",
        "millstream.zookeeper.digest=me:secret",
        "zookeeper.set.acl=true",
        "zookeeper.ssl.client.enable=true",
        "zookeeper.ssl.keystore.location=/key.pem",
        "zookeeper.connection.timeout.ms=500",
    )
    assert (found.digest, found.is_protected, found.is_tls) == ("me:secret", True, True)
    assert (found.key_file, found.connect_timeout_ms) == ("/key.pem", 500)
    assert "secret" not in repr(found)


def test_what_is_there_from_before_is_protected_if_wanted():
    login = "millstream.zookeeper.digest=a:b"
    assert not ensemble("zookeeper.connect=a:1", login).protects_older
    assert ensemble("zookeeper.connect=a:1", login, "zookeeper.set.acl=true").protects_older


def test_what_is_created_with_a_credential_is_protected_by_it():
    assert ensemble("zookeeper.connect=a:1", "millstream.zookeeper.digest=a:b").is_protected
    assert not ensemble("zookeeper.connect=a:1").is_protected


def test_a_login_by_sasl_is_a_jaas_line():
    option = "millstream.zookeeper.sasl.jaas.config"
    line = 'org.x.DigestLoginModule required username="me" password="secret";'
    found = ensemble("zookeeper.connect=a:1", f"{option}={line}", "zookeeper.set.acl=true")
    assert (found.sasl, found.is_protected) == (SaslLogin("me", "secret"), True)
    assert "secret" not in repr(found)
    for wrong in ("secret", line.replace("Digest", "Plain"), line.replace("password", "word")):
        with pytest.raises(ConfigError, match=option) as raised:
            ensemble("zookeeper.connect=a:1", f"{option}={wrong}")
        assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    "sets",
    [
        ["zookeeper.connect=a:b"],
        ["zookeeper.connect=a:1,,b:1"],
        ["zookeeper.connect=/only"],
        ["zookeeper.connect=a:0"],
        ["zookeeper.connect=a:1//x"],
        ["zookeeper.connect=a:1/../x"],
        ["zookeeper.connect=a:1", "zookeeper.set.acl=true"],
    ],
)
def test_what_cannot_be_is_one_line(sets):
    with pytest.raises(ConfigError, match="zookeeper"):
        ensemble(*sets)
