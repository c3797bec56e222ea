"""What a start does to a directory that a crash left half done.

Covers broker/node, storage.
"""

from pathlib import Path

import pytest

from millstream.errors import StartError
from millstream.wire.apis.metadata import MetadataRequest
from tests.broker.handlers.exchanges import batch, fetch, produce
from tests.support.broker import Broker
from tests.support.raw_client import RawClient


def test_a_partition_whose_id_a_power_cut_took_gets_it_back(tmp_path: Path) -> None:
    """It was created, not yet synced, when the power went. Once records are promised to be
    in it, the next start must not find the empty file and take it for damage."""
    running = Broker(data_dir=tmp_path / "data", topics={"t": 1})
    with running:
        pass
    metadata = tmp_path / "data" / "t-0" / "partition.metadata"
    written = metadata.read_bytes()
    (tmp_path / "data" / ".kafka_cleanshutdown").unlink()
    (tmp_path / "data" / "millstream-boot").write_text("another boot")
    metadata.write_bytes(b"")
    running = Broker(data_dir=tmp_path / "data")
    for value in (b"first", b"second"):
        with running, RawClient(running.bootstrap) as client:
            assert produce(client, "t", batch(value), acks=-1).error_code == 0
        assert metadata.read_bytes() == written
    with running, RawClient(running.bootstrap) as client:
        assert fetch(client, "t", 0).high_watermark == 2
        assert client.ask(MetadataRequest(topics=None), 1).topics[0].error_code == 0


def test_a_damaged_database_is_one_line_and_leaves_the_directory_free(tmp_path: Path) -> None:
    running = Broker(data_dir=tmp_path / "data", topics={"t": 1})
    with running:
        pass
    database = tmp_path / "data" / "millstream-coordination.sqlite"
    content = database.read_bytes()
    database.write_bytes(b"garbage" * 1000)
    with pytest.raises(StartError, match=r"millstream-coordination.sqlite: .*not a database"):
        running.start()
    database.write_bytes(content)
    with running, RawClient(running.bootstrap) as client:
        assert client.ask(MetadataRequest(topics=None), 1).topics[0].name == "t"
