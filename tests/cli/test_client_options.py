"""Client options in Kafka's names and in librdkafka's."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from millstream.cli.client_options import (
    client_option,
    client_options,
    kafka_names,
    librdkafka_names,
    security_of_command,
    security_of_file,
)
from millstream.cli.failure import CommandFailed

JAAS = 'ScramLoginModule required username="al\\"ice" password="se cret";'


@click.command()
@client_option("--config")
def command() -> None:
    for name, value in sorted(client_options().items()):
        click.echo(f"{name}={value}")


def test_what_the_command_line_says_counts_more_than_the_file(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL\nbootstrap.servers=h:1\nkey.serializer=x\nssl.a=b\n")
    for arguments in (
        ["-X", "security.protocol=SASL_SSL", "--config", str(file), "-X", "linger.ms=5"],
        ["--config", str(file), "-X", "linger.ms=5", "-X", "security.protocol=SASL_SSL"],
    ):
        ran = CliRunner().invoke(command, arguments)
        assert ran.output.splitlines() == [
            "bootstrap.servers=h:1",
            "linger.ms=5",
            "security.protocol=SASL_SSL",
            "ssl.a=b",
        ]


def test_a_setting_without_a_value_is_wrong_usage() -> None:
    ran = CliRunner().invoke(command, ["-X", "secret"])
    assert ran.exit_code == 2


@pytest.mark.parametrize(
    "name",
    [
        "sasl.password",
        "sasl.jaas.config",
        "ssl.key.password",
        "ssl.keystore.password",
        "ssl.keystore.key",
        "ssl.key.pem",
        "sasl.oauthbearer.client.secret",
    ],
)
def test_a_secret_on_the_command_line_is_refused(name: str, tmp_path: Path) -> None:
    ran = CliRunner().invoke(command, ["-X", f"{name}=hunter2"])
    assert isinstance(ran.exception, CommandFailed)
    assert ran.exception.exit_code == 2
    said = str(ran.exception)
    assert "everybody on this machine can read a command line" in said
    assert "--command-config" in said
    assert f"{name}='${{file:PATH}}'" in said
    assert "hunter2" not in said
    kept = tmp_path / "kept"
    kept.write_text("hunter2\n")
    ran = CliRunner().invoke(command, ["-X", f"{name}=${{file:{kept}}}"])
    assert ran.output == f"{name}=hunter2\n"
    ran = CliRunner().invoke(command, ["-X", f"{name}=${{env:KEPT}}"], env={"KEPT": "hunter2"})
    assert ran.output == f"{name}=hunter2\n"
    file = tmp_path / "client.properties"
    file.write_text(f"{name}=hunter2\n")
    for arguments, variables in (
        (["--config", str(file)], {}),
        ([], {"MILLSTREAM_CLIENT_CONFIG": str(file)}),
    ):
        ran = CliRunner().invoke(command, arguments, env=variables)
        assert ran.output == f"{name}=hunter2\n"


def test_what_is_no_secret_is_taken() -> None:
    settings = ["sasl.oauthbearer.token.endpoint.url=https://h/token", "ssl.keystore.password="]
    ran = CliRunner().invoke(command, [word for each in settings for word in ("-X", each)])
    assert ran.exit_code == 0


def test_a_file_that_is_missing_is_named() -> None:
    ran = CliRunner().invoke(command, ["--config", "/no/such.properties"])
    assert isinstance(ran.exception, CommandFailed)
    assert "/no/such.properties" in str(ran.exception)


def test_without_a_command_there_are_no_options() -> None:
    assert client_options() == {}
    assert not security_of_command().uses_sasl


def test_kafkas_names_become_librdkafkas() -> None:
    options = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": JAAS,
        "ssl.truststore.location": "/ca.pem",
        "ssl.truststore.type": "PEM",
        "ssl.keystore.location": "/me.pem",
        "ssl.endpoint.identification.algorithm": "",
        "bootstrap.servers": "h:1",
    }
    assert librdkafka_names(options) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": 'al"ice',
        "sasl.password": "se cret",
        "ssl.ca.location": "/ca.pem",
        "ssl.certificate.location": "/me.pem",
        "ssl.key.location": "/me.pem",
        "ssl.endpoint.identification.algorithm": "none",
    }
    stores = {"ssl.keystore.location": "/me.p12", "ssl.keystore.password": "x"}
    assert librdkafka_names(stores) == stores
    pem = {
        "ssl.truststore.certificates": "A",
        "ssl.keystore.certificate.chain": "B",
        "ssl.keystore.key": "C",
    }
    assert librdkafka_names(pem) == {
        "ssl.ca.pem": "A",
        "ssl.certificate.pem": "B",
        "ssl.key.pem": "C",
    }


def test_librdkafkas_names_become_kafkas(tmp_path: Path) -> None:
    certificate, key = tmp_path / "c.pem", tmp_path / "k.pem"
    certificate.write_text("B")
    key.write_text("C")
    options = {
        "sasl.mechanisms": "PLAIN",
        "sasl.username": 'al"ice',
        "sasl.password": "a\\b",
        "ssl.ca.location": "/ca.pem",
        "ssl.certificate.location": str(certificate),
        "ssl.key.location": str(key),
        "ssl.endpoint.identification.algorithm": "none",
    }
    assert kafka_names(options) == {
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": ('LoginModule required username="al\\"ice" password="a\\\\b";'),
        "ssl.truststore.location": "/ca.pem",
        "ssl.truststore.type": "PEM",
        "ssl.keystore.certificate.chain": "B",
        "ssl.keystore.key": "C",
        "ssl.endpoint.identification.algorithm": "",
    }


def test_a_jaas_line_that_cannot_be_read_is_not_repeated() -> None:
    with pytest.raises(CommandFailed) as caught:
        librdkafka_names({"sasl.jaas.config": 'X required password="hidden'})
    assert "hidden" not in str(caught.value)


def test_the_security_of_a_file_alone(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
        "sasl.username=anna\nsasl.password=secret\nacks=all\n"
    )
    found = security_of_file(file)
    assert (found.protocol, found.credentials.mechanism) == ("SASL_PLAINTEXT", "SCRAM-SHA-512")
    assert security_of_file(None).protocol == "PLAINTEXT"
    file.write_text("security.protocol=CARRIER_PIGEON\n")
    with pytest.raises(CommandFailed, match=r"security\.protocol"):
        security_of_file(file)
