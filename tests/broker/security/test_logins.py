"""Credentials that change while a node runs, and those that it begins with."""

import logging
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from tests.support.broker import Broker
from tests.support.raw_client import RawClient
from tests.support.sasl_node import (
    PASSWORD,
    PLAIN_USER,
    SCRAM_USER,
    librdkafka,
    log_in_plain,
    log_in_scram,
    sasl_node,
    sasl_settings,
)


def test_a_user_who_leaves_the_file_is_closed_and_others_stay(tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text("anna=a\nbert=b\n")
    with (
        sasl_node("PLAIN", sasl__plain__users__file=str(file)) as node,
        RawClient(node.bootstrap) as anna,
        RawClient(node.bootstrap) as bert,
    ):
        assert log_in_plain(anna, "anna", "a").error_code == 0
        assert log_in_plain(bert, "bert", "b").error_code == 0
        file.write_text("bert=b\ncarl=c\n")
        assert anna.is_closed_by_peer()
        with RawClient(node.bootstrap) as client:
            assert log_in_plain(client, "carl", "c").error_code == 0
        assert log_in_plain(bert, "bert", "b").error_code == 0


def test_the_first_users_are_created_once(tmp_path: Path) -> None:
    settings = sasl_settings("SCRAM-SHA-256")
    with Broker(settings=settings, data_dir=tmp_path) as node, RawClient(node.bootstrap) as client:
        assert log_in_scram(client, SCRAM_USER, PASSWORD).error_code == 0
    settings["sasl.scram.initial.users"] = (
        f"SCRAM-SHA-256=[name={SCRAM_USER},password=other];SCRAM-SHA-256=[name=new,password=x]"
    )
    with Broker(settings=settings, data_dir=tmp_path) as node:
        with RawClient(node.bootstrap) as client:
            assert log_in_scram(client, SCRAM_USER, PASSWORD).error_code == 0
        with RawClient(node.bootstrap) as client:
            assert log_in_scram(client, "new", "x").error_code != 0


def test_no_secret_is_logged_or_described(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with sasl_node(delegation__token__secret__key=PASSWORD + "-key") as node:
        for password in (PASSWORD, PASSWORD + "-wrong"):
            with RawClient(node.bootstrap) as client:
                log_in_plain(client, PLAIN_USER, password)
            with RawClient(node.bootstrap) as client:
                log_in_scram(client, SCRAM_USER, password)
        admin = AdminClient(librdkafka(node.bootstrap, "SCRAM-SHA-256", SCRAM_USER, PASSWORD))
        (described,) = admin.describe_configs(
            [ConfigResource(ConfigResource.Type.BROKER, "1")]
        ).values()
        options = described.result(20)
    names = [
        name for name in options if name.endswith(("jaas.config", "secret.key", "initial.users"))
    ]
    assert len(names) >= 3
    assert all(options[name].value is None for name in names)
    assert all(options[name].is_sensitive for name in names)
    assert "Authentication failed" in caplog.text
    assert PASSWORD not in caplog.text + str({name: o.value for name, o in options.items()})
    assert "stored_key" not in caplog.text
