"""Every kind of store that is read, what is refused and why, versions and ciphers."""

import ssl
import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from millstream.config import ConfigError, load_config
from millstream.security.tls import (
    Store,
    client_context,
    openssl_name,
    read_tls_options,
    server_context,
)
from tests.support.certificates import Certificates


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def context(*sets: str) -> ssl.SSLContext:
    return server_context(read_tls_options(load_config(sets=sets).for_listener("SSL")))


def handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> ssl.SSLObject:
    """The client's end of a connection in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (ours, theirs):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert ours.version() is not None
    return ours


def trusting(certificates: Certificates) -> ssl.SSLContext:
    return client_context(Store("ssl.keystore"), Store("ssl.truststore", str(certificates.ca)))


def pkcs12_file(certificates: Certificates, path: Path, password: bytes | None) -> Path:
    made = certificates.make("server", hosts=("localhost",))
    encryption = (
        serialization.BestAvailableEncryption(password)
        if password
        else serialization.NoEncryption()
    )
    key = serialization.load_pem_private_key(made.key, None)
    assert isinstance(key, pkcs12.PKCS12PrivateKeyTypes)
    certificate = x509.load_pem_x509_certificate(made.certificate)
    path.write_bytes(
        pkcs12.serialize_key_and_certificates(b"server", key, certificate, None, encryption)
    )
    return path


def test_a_pem_file_serves_without_a_type(certificates: Certificates) -> None:
    found = handshake(
        context(f"ssl.keystore.location={certificates.server}"), trusting(certificates)
    )
    assert found.version() == "TLSv1.3"


def test_a_pkcs12_file_serves_with_its_password(certificates: Certificates, tmp_path: Path) -> None:
    store = pkcs12_file(certificates, tmp_path / "server.p12", b"secret")
    sets = (f"ssl.keystore.location={store}", "ssl.keystore.password=secret")
    handshake(context(*sets), trusting(certificates))
    # Java gives the key inside the same password.
    handshake(context(*sets, "ssl.key.password=secret"), trusting(certificates))


def test_pem_text_serves_even_in_one_line(certificates: Certificates) -> None:
    made = certificates.make("server", hosts=("localhost",))
    key, chain = (part.decode().replace("\n", " ") for part in (made.key, made.certificate))
    server = context(f"ssl.keystore.key={key}", f"ssl.keystore.certificate.chain={chain}")
    handshake(server, trusting(certificates))


def test_an_encrypted_key_opens_with_its_password(
    certificates: Certificates, tmp_path: Path
) -> None:
    made = certificates.make("server", hosts=("localhost",))
    key = serialization.load_pem_private_key(made.key, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    store = tmp_path / "encrypted.pem"
    store.write_bytes(key + made.certificate)
    handshake(
        context(f"ssl.keystore.location={store}", "ssl.key.password=secret"),
        trusting(certificates),
    )
    with pytest.raises(ConfigError, match=r"ssl\.key\.password"):
        context(f"ssl.keystore.location={store}")


def test_a_java_keystore_is_refused_with_the_command_that_converts_it(tmp_path: Path) -> None:
    store = tmp_path / "server.jks"
    store.write_bytes(bytes.fromhex("feedfeed00000002"))
    with pytest.raises(ConfigError, match=f"keytool -importkeystore -srckeystore {store}"):
        context(f"ssl.keystore.location={store}")


def test_what_is_no_store_is_refused(certificates: Certificates, tmp_path: Path) -> None:
    rubbish = tmp_path / "rubbish"
    rubbish.write_bytes(b"\x30rubbish")
    with pytest.raises(ConfigError, match=r"not PEM, and not a PKCS12 file"):
        context(f"ssl.keystore.location={rubbish}")
    with pytest.raises(ConfigError, match="not a PEM file"):
        context(f"ssl.keystore.location={rubbish}", "ssl.keystore.type=PEM")
    with pytest.raises(ConfigError, match="No such file"):
        context("ssl.keystore.location=/no/such/file")
    with pytest.raises(ConfigError, match="must hold a private key"):
        context(f"ssl.keystore.location={certificates.ca}")
    with pytest.raises(ConfigError, match="needs a key"):
        context()


def test_no_message_shows_a_secret(certificates: Certificates, tmp_path: Path) -> None:
    store = pkcs12_file(certificates, tmp_path / "server.p12", b"secret")
    with pytest.raises(ConfigError) as caught:
        context(f"ssl.keystore.location={store}", "ssl.keystore.password=hunter2")
    assert "hunter2" not in str(caught.value)


def test_client_certificates_need_something_to_be_checked_with(certificates: Certificates) -> None:
    keystore = f"ssl.keystore.location={certificates.server}"
    with pytest.raises(ConfigError, match=r"set ssl\.truststore\.location"):
        context(keystore, "ssl.client.auth=required")
    found = context(
        keystore, "ssl.client.auth=required", f"ssl.truststore.location={certificates.ca}"
    )
    assert found.verify_mode is ssl.CERT_REQUIRED


def test_a_truststore_of_java_is_read(certificates: Certificates, tmp_path: Path) -> None:
    store = tmp_path / "trust.p12"
    subprocess.run(
        [
            *("keytool", "-importcert", "-noprompt", "-alias", "ca", "-file", certificates.ca),
            *("-keystore", store, "-storetype", "PKCS12", "-storepass", "secret"),
        ],
        check=True,
        capture_output=True,
    )
    trust = client_context(
        Store("ssl.keystore"), Store("ssl.truststore", str(store), password="secret")
    )
    handshake(context(f"ssl.keystore.location={certificates.server}"), trust)


@pytest.mark.parametrize(
    ("sets", "version"),
    [
        (["ssl.enabled.protocols=TLSv1.2"], "TLSv1.2"),
        (["ssl.enabled.protocols=TLSv1.3"], "TLSv1.3"),
        (["ssl.cipher.suites=TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"], "TLSv1.2"),
        (["ssl.cipher.suites=TLS_AES_128_GCM_SHA256"], "TLSv1.3"),
    ],
)
def test_versions_and_ciphers_are_as_set(
    certificates: Certificates, sets: list[str], version: str
) -> None:
    server = context(f"ssl.keystore.location={certificates.server}", *sets)
    assert handshake(server, trusting(certificates)).version() == version


def test_a_choice_that_leaves_nothing_is_refused(certificates: Certificates) -> None:
    keystore = f"ssl.keystore.location={certificates.server}"
    with pytest.raises(ConfigError, match="no TLS version is left"):
        context(keystore, "ssl.enabled.protocols=TLSv1.3", "ssl.cipher.suites=AES256-SHA")
    with pytest.raises(ConfigError, match="openssl ciphers"):
        context(keystore, "ssl.cipher.suites=TLS_NO_WITH_SUCH")


@pytest.mark.parametrize(
    ("suite", "name"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_128_CBC_SHA256", "DHE-RSA-AES128-SHA256"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
    ],
)
def test_suites_have_javas_names_or_those_of_openssl(suite: str, name: str) -> None:
    assert openssl_name(suite) == name
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(name)
