"""`millstream storage compact`, on a running node and on its directory."""

import asyncio
import json
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tests.replication.nodes import cluster_of, until
from tests.support.broker import Broker
from tests.support.command_line import Ran, run_millstream

CONFIGS = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0"}


def fill(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(300):
        producer.produce(topic, b"value %d" % number, key=b"k%d" % (number % 10), partition=0)
    assert producer.flush(20) == 0


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A stopped node's directory with a compacted topic and another one."""
    directory = tmp_path / "data"
    with Broker(data_dir=directory) as broker:
        broker.create_topic("table", configs=CONFIGS)
        broker.create_topic("stream")
        fill(broker.bootstrap, "table")
        fill(broker.bootstrap, "stream")
    return directory


def test_a_running_node_compacts_a_topic_and_tells_what_that_brought() -> None:
    with Broker() as broker:
        broker.create_topic("table", partitions=2, configs=CONFIGS)
        fill(broker.bootstrap, "table")
        ran = run_millstream("storage", "compact", "table", "-b", broker.bootstrap)
        assert ran.exit_code == 0, ran.errors
        first, second = ran.output.splitlines()[1:]
        assert first.split()[:2] == ["table-0", "1.00"]
        assert first.split()[4:7] == ["300", "10", "10"]
        assert second.split()[0] == "table-1"
        assert ran.errors.splitlines()[-1].startswith("2 of 2 partitions")
        again = run_millstream("storage", "compact", "table", "--json", "-b", broker.bootstrap)
        [told, _] = json.loads(again.output)
        assert told["records_before"] == told["records_after"] == 0
        assert told["bytes_before"] == told["bytes_after"] == int(first.split()[3])


def test_records_are_counted_once_though_their_keys_need_several_rounds() -> None:
    # Room for two of the ten keys.
    with Broker(settings={"log.cleaner.dedupe.buffer.size": "60"}) as broker:
        broker.create_topic("table", configs=CONFIGS)
        fill(broker.bootstrap, "table")
        ran = run_millstream("storage", "compact", "table", "--json", "-b", broker.bootstrap)
    [told] = json.loads(ran.output)
    assert told["keys"] < 10
    assert (told["records_before"], told["records_after"]) == (300, 10)


def test_a_topic_that_cannot_be_compacted_is_refused_in_plain_words() -> None:
    with Broker(topics={"stream": 1}) as broker:
        ran = run_millstream("storage", "compact", "stream", "-b", broker.bootstrap)
        assert ran.exit_code == 1
        assert "cleanup.policy" in ran.errors
        ran = run_millstream("storage", "compact", "nothing", "-b", broker.bootstrap)
        assert ran.exit_code == 1
        assert "does not exist" in ran.errors


def test_a_directory_is_compacted_offline(data_dir: Path) -> None:
    ran = run_millstream("storage", "compact", str(data_dir), "--json")
    assert ran.exit_code == 0, ran.errors
    [told] = json.loads(ran.output)
    assert told["partition"] == "table-0"
    assert (told["records_before"], told["records_after"], told["keys"]) == (300, 10, 10)
    assert told["bytes_after"] < told["bytes_before"]
    assert not list(data_dir.glob("*/*.deleted"))
    assert run_millstream("storage", "verify", str(data_dir)).exit_code == 0
    with Broker(data_dir=data_dir) as broker:
        ran = run_millstream(
            *("consume", "table", "-o", "beginning", "-n", "10", "-b", broker.bootstrap)
        )
        assert ran.output.count("value 29") == 10


def test_offline_the_options_of_the_node_count_when_told(data_dir: Path) -> None:
    lag = "log.cleaner.min.compaction.lag.ms=3600000"
    ran = run_millstream("storage", "compact", str(data_dir), "--json", "--set", lag)
    assert [row["records_before"] for row in json.loads(ran.output)] == [0]
    file = data_dir.with_name("server.properties")
    file.write_text(lag)
    ran = run_millstream("storage", "compact", str(data_dir), "--json", "--config", str(file))
    assert [row["records_before"] for row in json.loads(ran.output)] == [0]
    ran = run_millstream("storage", "compact", "table", "--set", lag)
    assert ran.exit_code == 2


def test_offline_what_was_set_while_the_node_ran_counts(data_dir: Path) -> None:
    lag = ConfigEntry(
        "log.cleaner.min.compaction.lag.ms",
        "3600000",
        incremental_operation=AlterConfigOpType.SET,
    )
    with Broker(data_dir=data_dir) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[lag])
        admin.incremental_alter_configs([resource])[resource].result(20)
    ran = run_millstream("storage", "compact", str(data_dir), "--json")
    assert [row["records_before"] for row in json.loads(ran.output)] == [0]


def test_one_partition_is_compacted_offline(data_dir: Path) -> None:
    ran = run_millstream("storage", "compact", str(data_dir / "table-0"), "--json")
    assert [row["partition"] for row in json.loads(ran.output)] == ["table-0"]
    ran = run_millstream("storage", "compact", str(data_dir / "stream-0"))
    assert ran.exit_code == 1
    assert "cleanup.policy" in ran.errors


def test_the_directory_of_a_running_node_is_left_to_it(data_dir: Path) -> None:
    with Broker(data_dir=data_dir):
        ran = run_millstream("storage", "compact", str(data_dir))
    assert ran.exit_code == 1
    assert "in use" in ran.errors


def test_a_foreign_directory_is_not_touched(tmp_path: Path) -> None:
    ran = run_millstream("storage", "compact", str(tmp_path))
    assert ran.exit_code == 1
    assert "not a data directory" in ran.errors
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_in_a_cluster_every_replica_is_compacted_and_who_is_away_is_named(tmp_path: Path) -> None:
    async def scenario() -> tuple[Ran, Ran]:
        async with cluster_of(tmp_path, nodes=3) as cluster:
            await cluster.create("table", replicas=2, cleanup_policy="compact")
            address = f"127.0.0.1:{next(iter(cluster.nodes.values())).port}"
            await asyncio.to_thread(fill, address, "table")
            state = cluster.nodes[1].image.partition("table", 0)
            assert state is not None
            replicas = [cluster.replica(node_id, "table") for node_id in state.replicas]
            # A follower hears with its next fetch what is committed, and cleans no more.
            await until(
                lambda: all(replica.log.high_watermark == 300 for replica in replicas),
                "everybody knows that all is committed",
            )
            command = ["storage", "compact", "table"]
            whole = await asyncio.to_thread(run_millstream, *command, "--json", "-b", address)
            assert sorted(row["node"] for row in json.loads(whole.output)) == sorted(state.replicas)
            away = state.replicas[0]
            await cluster.kill(away)
            left = next(iter(cluster.nodes.values()))
            await until(lambda: away not in left.image.brokers, "it is gone")
            address = f"127.0.0.1:{left.port}"
            rest = await asyncio.to_thread(run_millstream, *command, "-b", address)
            assert f"node {away} is down" in rest.errors
            return whole, rest

    whole, rest = asyncio.run(scenario())
    assert whole.exit_code == rest.exit_code == 0, whole.errors
    for row in json.loads(whole.output):
        assert (row["records_before"], row["records_after"]) == (300, 10)
    assert "2 of 2 replicas" in whole.errors
    assert "1 of 1 partitions" in rest.errors
