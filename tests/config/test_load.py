from pathlib import Path

import pytest

from millstream.config import ConfigError, Source, load_config

# The file that Apache Kafka 4 ships, without its comments and with its defaults.
KRAFT_FILE = """\
process.roles=broker,controller
node.id=7
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
log.dirs=somewhere
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def write(tmp_path: Path, text: str, name: str = "server.properties") -> Path:
    file = tmp_path / name
    file.write_text(text)
    return file


def test_the_file_that_kafka_ships_is_accepted(tmp_path):
    config = load_config(file=write(tmp_path, KRAFT_FILE))
    assert config.int("node.id") == 7
    assert config.list("log.dirs") == ("somewhere",)
    assert "num.io.threads: accepted, no effect" in config.notes
    assert not any(note.startswith("listeners") for note in config.notes)


def test_flags_go_before_sets_and_sets_before_the_file(tmp_path):
    file = write(tmp_path, "num.partitions=1\nmessage.max.bytes=1\nbroker.rack=file\n")
    config = load_config(
        file=file,
        sets=["num.partitions=2", "message.max.bytes=2"],
        flags={"num.partitions": "3"},
    )
    assert config.int("num.partitions") == 3
    assert config.int("message.max.bytes") == 2
    assert config.string("broker.rack") == "file"
    assert config.int("default.replication.factor") == 1
    origins = [config.origin(name) for name in ("num.partitions", "message.max.bytes")]
    assert origins == ["flag", "--set"]
    assert config.origin("broker.rack") == str(file)
    assert config.origin("default.replication.factor") == "default"


def test_a_coarser_unit_at_a_higher_rank_hides_a_finer_one_below(tmp_path):
    file = write(tmp_path, "log.retention.ms=5\nlog.retention.minutes=7\n")
    assert load_config(file=file).int("log.retention.ms") == 5
    assert load_config(file=file, sets=["log.retention.hours=1"]).int("log.retention.ms") == 3600000


def test_the_data_directory_flag_replaces_either_name_in_the_file(tmp_path):
    for name in ("log.dir", "log.dirs"):
        config = load_config(file=write(tmp_path, f"{name}=old"), flags={"log.dirs": "new"})
        assert config.list("log.dirs") == ("new",)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("num.partition=1", "did you mean num.partitions"),
        ("num.partitions=many", "not a whole number"),
        ("num.partitions", "write it as name=value"),
        ("ssl.enabled.protocols=TLSv1.1", "not one of TLSv1.2, TLSv1.3"),
        ("listener.name.outside.ssl.client.auth=sometimes", "not one of required"),
        ("log.retention.ms=0", "delete everything"),
        ("process.roles=controller", "always a broker"),
        ("controller.quorum.voters=1@a:1,2@b:1", "several nodes"),
        ("log.dirs=", "no directory"),
        ("inter.broker.listener.name=OTHER", "not one of the listeners"),
        ("remote.log.storage.system.enable=true", "tiered storage"),
    ],
)
def test_what_cannot_be_is_one_line(setting, message):
    with pytest.raises(ConfigError, match=message) as caught:
        load_config(sets=[setting])
    assert "\n" not in str(caught.value)


def test_compaction_lags_must_agree():
    with pytest.raises(ConfigError, match=r"min\.compaction\.lag\.ms"):
        load_config(
            sets=["log.cleaner.min.compaction.lag.ms=10", "log.cleaner.max.compaction.lag.ms=5"]
        )


def test_a_refused_option_may_be_set_to_what_it_is_anyway():
    config = load_config(sets=["ssl.client.auth=none", "remote.log.storage.system.enable=false"])
    assert config.source("ssl.client.auth") is Source.STATIC_BROKER


def test_the_two_names_of_the_node_id_must_agree():
    assert load_config(sets=["broker.id=4"]).int("node.id") == 4
    assert load_config(sets=["broker.id=-1"]).int("node.id") == 1
    assert load_config(sets=["broker.id=4", "node.id=4"]).int("node.id") == 4
    with pytest.raises(ConfigError, match="differ"):
        load_config(sets=["broker.id=4", "node.id=5"])
    with pytest.raises(ConfigError, match="negative"):
        load_config(sets=["broker.id=-7"])


def test_options_of_plug_ins_are_noted():
    assert load_config(sets=["rsm.config.bucket=x"]).notes == (
        "rsm.config.bucket: accepted, no effect",
    )
