"""Covers share fetches and acknowledgements, at random, beside Apache Kafka."""

from pathlib import Path

from tests.interop.share_sequences import SETTINGS, differences
from tests.support.apache_kafka import ApacheKafka
from tests.support.node import MillstreamNode

COUNT = 30


def test_random_sequences_are_answered_as_by_apache_kafka(tmp_path: Path) -> None:
    options = [part for name, value in SETTINGS.items() for part in ("--set", f"{name}={value}")]
    with (
        ApacheKafka(tmp_path / "kafka", settings=SETTINGS) as kafka,
        MillstreamNode(tmp_path / "node", *options) as node,
    ):
        found, compared = differences(kafka, node, range(1, COUNT + 1))
    assert found == []
    assert compared == COUNT
