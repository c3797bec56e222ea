"""`ship` and `loadgen` as users run them: own processes, kills, rotation."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from confluent_kafka import Consumer, TopicPartition

from millstream.cli.patient_producer import Sender, Stopped
from millstream.cli.progress import Progress
from millstream.cli.ship import _Shipper, _State
from millstream.ingest.blocks import BlockJoiner
from millstream.ingest.lines import Joiner
from tests.support.command_line import run_millstream
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

MakeTopic = Callable[..., str]


def records(bootstrap: str, topic: str) -> list[tuple[bytes, bytes]]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while (message := consumer.poll(10)) is not None and not message.error():
        found.append((message.key(), message.value()))
    consumer.close()
    return found


def values(bootstrap: str, topic: str) -> list[bytes]:
    return [value for _, value in records(bootstrap, topic)]


def test_files_are_sent_whole_and_only_what_is_new_the_second_time(
    kafka_bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, log = make_topic(partitions=1), tmp_path / "x.log"
    log.write_bytes(b"one\n\ntwo\xff\nthree")
    arguments = ["ship", str(log), "--topic", topic, "--state", str(tmp_path / "state")]
    done = run_millstream(*arguments, "--source", "web/x", bootstrap=kafka_bootstrap)
    assert done.exit_code == 0, done.errors
    assert "shipped 3 records" in done.errors
    assert records(kafka_bootstrap, topic) == [
        (b"web/x", b"one"),
        (b"web/x", b"two\xff"),
        (b"web/x", b"three"),
    ]
    with log.open("ab") as file:
        file.write(b"\nfour\n")
    assert run_millstream(*arguments, bootstrap=kafka_bootstrap).exit_code == 0
    assert values(kafka_bootstrap, topic)[3:] == [b"four"]


def test_an_empty_file_and_binary_garbage_are_no_obstacle(
    kafka_bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(partitions=1)
    empty, binary = tmp_path / "empty.log", tmp_path / "binary.log"
    empty.write_bytes(b"")
    garbage = bytes(range(256)).replace(b"\n", b"") * 3
    binary.write_bytes(garbage + b"\nafter\n")
    state = ["--state", str(tmp_path / "state")]
    done = run_millstream(
        "ship", str(empty), str(binary), "--topic", topic, *state, bootstrap=kafka_bootstrap
    )
    assert done.exit_code == 0, done.errors
    assert values(kafka_bootstrap, topic) == [garbage, b"after"]


def test_a_stack_trace_is_one_record_also_if_the_file_ends_with_it(
    kafka_bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, log = make_topic(partitions=1), tmp_path / "x.log"
    log.write_bytes(b"one\n\tat a\n\tat b\ntwo\n")
    arguments = ["ship", str(log), "--topic", topic, "--state", str(tmp_path / "state")]
    done = run_millstream(*arguments, "--join-traces", bootstrap=kafka_bootstrap)
    assert done.exit_code == 0, done.errors
    command = [sys.executable, "-m", "millstream", *arguments, "--join-traces", "--follow"]
    follower = subprocess.Popen([*command, "--bootstrap", kafka_bootstrap])
    try:
        with log.open("ab") as file:
            file.write(b"three\n\tat c\n")
        wait_until(lambda: len(values(kafka_bootstrap, topic)) == 3, "the last trace was sent")
    finally:
        follower.terminate()
        follower.wait(30)
    assert values(kafka_bootstrap, topic) == [b"one\n\tat a\n\tat b", b"two", b"three\n\tat c"]


def test_a_block_of_lines_is_one_record(
    kafka_bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, log = make_topic(partitions=1), tmp_path / "x.log"
    log.write_bytes(b"\nStart: 1\nCommand: a\n\nStart: 2\nCommand: b\n")
    arguments = ["ship", str(log), "--topic", topic, "--state", str(tmp_path / "state")]
    done = run_millstream(*arguments, "--first-line", "Start: ", bootstrap=kafka_bootstrap)
    assert done.exit_code == 0, done.errors
    assert values(kafka_bootstrap, topic) == [b"Start: 1\nCommand: a", b"Start: 2\nCommand: b"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--join-traces", "--first-line", "a"], "exclude"),
        (["--first-line", ""], "is empty"),
        (["./x.log"], "are one file"),
    ],
)
def test_what_is_sent_must_be_clear(options: list[str], words: str) -> None:
    done = run_millstream("ship", "x.log", "--topic", "t", *options, bootstrap="127.0.0.1:1")
    assert done.exit_code == 2
    assert words in done.errors


def test_a_line_larger_than_a_record_is_sent_in_pieces(
    kafka_bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, log = make_topic(partitions=1), tmp_path / "x.log"
    log.write_bytes(b"a" * 10_000_000 + b"\nafter\n")
    done = run_millstream(
        *["ship", str(log), "--topic", topic, "--state", str(tmp_path / "state")],
        bootstrap=kafka_bootstrap,
    )
    assert "11 cut in a long line" in done.errors
    *pieces, last = values(kafka_bootstrap, topic)
    assert sum(map(len, pieces)) == 10_000_000
    assert last == b"after"


def test_a_shipper_that_is_killed_loses_no_line_and_repeats_only_the_last_ones(
    kafka_bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, log, state = make_topic(partitions=1), tmp_path / "x.log", tmp_path / "state"
    command = [sys.executable, "-m", "millstream", "ship", str(log), "--topic", topic, "--follow"]
    command += ["--state", str(state), "-q", "-b", kafka_bootstrap]
    written = 0
    for round_number in range(3):
        shipper = subprocess.Popen(command)
        try:
            with log.open("ab") as file:
                for _ in range(500):
                    file.write(b"line %d\n" % written)
                    written += 1
            last = b"line %d" % (written - 1)
            wait_until(
                lambda last=last: last in values(kafka_bootstrap, topic), "the line is there"
            )
            if round_number == 1:
                log.rename(log.with_name("x.log.1"))
        finally:
            shipper.kill()
            shipper.wait()
    shipper = subprocess.Popen(command)
    with log.open("ab") as file:
        file.write(b"last\n")
    try:
        wait_until(lambda: b"last" in values(kafka_bootstrap, topic), "the last line is there")
    finally:
        shipper.send_signal(signal.SIGTERM)
        assert shipper.wait(20) == 0
    got = values(kafka_bootstrap, topic)
    # A repeated line changes nothing here: the first time of each is in the file's order.
    assert list(dict.fromkeys(got)) == [b"line %d" % each for each in range(written)] + [b"last"]


class StoppingSender:
    """Acknowledges at once; SIGTERM comes while the first records are sent."""

    acknowledged_count = 0
    waiting_count = 0

    def __init__(self) -> None:
        self.values: list[bytes] = []

    def send(self, value: bytes, *, key: str, acknowledge: Callable[[], None]) -> None:
        self.values.append(value)
        acknowledge()

    def poll(self, seconds: float) -> None:
        signal.raise_signal(signal.SIGTERM)

    def stop(self) -> None:
        pass

    def finish(self, seconds_max: float) -> None:
        pass


class FullSender(StoppingSender):
    """Has room for three records; SIGTERM comes while the fourth waits."""

    def send(self, value: bytes, *, key: str, acknowledge: Callable[[], None]) -> None:
        if len(self.values) == 3:
            signal.raise_signal(signal.SIGTERM)
        super().send(value, key=key, acknowledge=acknowledge)

    def stop(self) -> None:
        raise Stopped


@pytest.mark.parametrize("joiner", [None, BlockJoiner(b"Start")])
def test_a_stop_in_the_middle_of_a_file_cuts_no_line_and_no_block(
    tmp_path: Path, joiner: Joiner | None
) -> None:
    log, sender = tmp_path / "x.log", StoppingSender()
    whole = b"".join(b"Start %06d\n rest %06d\n" % (at, at) for at in range(30_000))
    log.write_bytes(whole)
    with _State(tmp_path / "state") as state:
        shipper = _Shipper(
            cast(Sender, sender), state, (log,), None, Progress(quiet=True), [joiner]
        )
        assert not shipper.run(follow=False)
        sent = b"".join(value + b"\n" for value in sender.values)
        assert 0 < len(sent) < len(whole)
        assert whole.startswith(sent)
        assert state.marks[str(log.resolve())].position == len(sent)
        if joiner is not None:
            assert all(value.count(b"\n") == 1 for value in sender.values)


def test_a_stop_while_there_is_no_room_ends_it_at_the_last_acknowledged_line(
    tmp_path: Path,
) -> None:
    log, sender = tmp_path / "x.log", FullSender()
    log.write_bytes(b"line\n" * 9)
    with _State(tmp_path / "state") as state:
        shipper = _Shipper(cast(Sender, sender), state, (log,), None, Progress(quiet=True), [None])
        assert not shipper.run(follow=True)
        assert state.marks[str(log.resolve())].position == 3 * len(b"line\n")


def test_a_producer_without_room_waits_until_it_is_stopped() -> None:
    sender = Sender("127.0.0.1:1", "t", delivery_seconds_max=None)
    sender.stop()
    with pytest.raises(Stopped):
        for _ in range(100):
            sender.send(bytes(900_000), key="k")


def test_names_and_texts_need_not_be_utf_8(
    kafka_bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, log = make_topic(partitions=1), tmp_path / "x\udcff.log"
    log.write_bytes(b"\xff1\na\n\xff2\nb")
    done = run_millstream(
        *["ship", str(log), "--topic", topic, "--state", str(tmp_path / "state")],
        *["--first-line", "\udcff"],
        bootstrap=kafka_bootstrap,
    )
    assert done.exit_code == 0, done.errors
    [(key, first), (_, second)] = records(kafka_bootstrap, topic)
    assert key.endswith("/x\ufffd.log".encode())
    assert (first, second) == (b"\xff1\na", b"\xff2\nb")


def test_only_one_shipper_uses_a_state(
    kafka_bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, log, state = make_topic(partitions=1), tmp_path / "x.log", tmp_path / "state"
    log.write_bytes(b"one\n")
    arguments = ["ship", str(log), "--topic", topic, "--state", str(state)]
    first = subprocess.Popen(
        [sys.executable, "-m", "millstream", *arguments, "-f", "-q", "-b", kafka_bootstrap]
    )
    try:
        wait_until(state.exists, "a state is written")
        second = run_millstream(*arguments, bootstrap=kafka_bootstrap)
        assert second.exit_code == 1
        assert "another shipper" in second.errors
    finally:
        first.terminate()
        first.wait(20)


def test_a_file_that_is_not_there_is_an_error_only_without_follow(
    kafka_bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    done = run_millstream(
        *["ship", str(tmp_path / "no.log"), "--topic", make_topic(partitions=1)],
        bootstrap=kafka_bootstrap,
    )
    assert done.exit_code == 1
    assert "--follow" in done.errors


def test_loadgen_sends_what_it_prints_for_the_same_seed(
    kafka_bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=1)
    traffic = ["loadgen", "-n", "400", "--seed", "7", "--start", "1790000000000"]
    sent = run_millstream(*traffic, "--topic", topic, "--fast", bootstrap=kafka_bootstrap)
    assert "sent 400 lines" in sent.errors
    printed = run_millstream(*traffic, bootstrap=kafka_bootstrap).output
    assert b"\n".join(values(kafka_bootstrap, topic)).decode() + "\n" == printed
