"""What ends, and what stays, when a start fails. Covers testing/brokers.py too."""

import threading
from pathlib import Path

import pytest

from millstream.errors import StartError
from millstream.testing import Broker, Cluster
from tests.support.ports import reserve_port


def threads() -> set[threading.Thread]:
    return {one for one in threading.enumerate() if one.name.startswith("millstream-")}


def test_a_broker_that_cannot_start_leaves_nothing_behind() -> None:
    port = reserve_port()
    with Broker(port=port) as first:
        before = threads()
        second = Broker(port=port)
        with pytest.raises(StartError):
            second.start()
        assert second._temporary is None
        assert threads() == before
        first.create_topic("works")


def test_a_cluster_that_cannot_start_leaves_nothing_behind() -> None:
    before = threads()
    cluster = Cluster(settings={"num.partitions": "none"})
    with pytest.raises(Exception, match=r"num\.partitions"):
        cluster.start()
    assert cluster._temporary is None
    assert threads() == before


def test_data_that_is_given_is_kept(tmp_path: Path) -> None:
    with Cluster(brokers=1, data_dir=tmp_path, topics={"orders": 1}):
        pass
    assert (tmp_path / "node-1" / "orders-0").is_dir()
