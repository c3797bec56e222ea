from millstream.broker.security.scram_credentials import ScramCredentials
from millstream.cluster.client_entities import ClientEntities, ClientEntity
from millstream.security.sasl.scram import encode_credential, new_credential

SHA_256 = "SCRAM-SHA-256"


def credential(iterations=4096):
    return new_credential(SHA_256, "p", salt=b"salt", iterations=iterations)


def test_credentials_follow_the_image(caplog):
    entities = ClientEntities()
    credentials = ScramCredentials(entities)
    assert credentials.find(SHA_256, "u") is None
    entities.put(ClientEntity(user="u"), {SHA_256: encode_credential(credential())})
    assert credentials.find(SHA_256, "u") == credential()
    assert credentials.find("SCRAM-SHA-512", "u") is None
    entities.put(ClientEntity(user="u"), {SHA_256: "salt=hidden"})
    assert credentials.find(SHA_256, "u") is None
    assert "cannot log in" in caplog.text
    assert "hidden" not in caplog.text
    entities.put(ClientEntity(user="u"), {})
    assert credentials.find(SHA_256, "u") is None


def test_the_usual_iterations_are_those_of_most_users():
    entities = ClientEntities()
    credentials = ScramCredentials(entities)
    assert credentials.usual_iterations(SHA_256) == 4096
    for user, iterations in (("a", 8192), ("b", 8192), ("c", 5000)):
        text = encode_credential(credential(iterations))
        entities.put(ClientEntity(user=user), {SHA_256: text, "producer_byte_rate": "1"})
    assert credentials.usual_iterations(SHA_256) == 8192


def test_only_users_with_credentials_are_listed():
    entities = ClientEntities()
    text = encode_credential(credential())
    entities.put(ClientEntity(user="a"), {SHA_256: text, "producer_byte_rate": "1"})
    entities.put(ClientEntity(user="b"), {"producer_byte_rate": "1"})
    entities.put(ClientEntity(ip="10.0.0.1"), {"connection_creation_rate": "1"})
    assert dict(ScramCredentials(entities).users()) == {"a": {SHA_256: text}}
