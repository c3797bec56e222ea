"""The commands against a running broker, as a user types them.

Covers cli/topic.py, cli/topic_view.py, cli/produce.py, cli/consume.py.
"""

import json
import os
import signal
import subprocess
import sys
import uuid
import zlib
from pathlib import Path

import pytest

from tests.support.command_line import Ran, run_millstream
from tests.support.jars import classpath
from tests.support.node import MillstreamNode
from tests.support.tools import require, skip_if_java_is_left_out

pytestmark = pytest.mark.slow


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = f"cli-{uuid.uuid4().hex[:10]}"
    ran = run_millstream("topic", "create", name, "-p", "1", bootstrap=bootstrap)
    assert ran == Ran(0, "", f"created {name}\n")
    return name


def test_lines_are_sent_and_read_back(bootstrap: str, topic: str) -> None:
    sent = run_millstream("produce", topic, stdin="one\ntwo\nthree\nfour\n", bootstrap=bootstrap)
    assert sent == Ran(0, "", f"sent 4 records to {topic}\n")
    ran = run_millstream("consume", topic, "-o", "beginning", "-n", "3", bootstrap=bootstrap)
    assert ran == Ran(0, "one\ntwo\nthree\n", "")


def test_keys_headers_and_compression_are_kept(bootstrap: str, topic: str) -> None:
    run_millstream(
        *["produce", topic, "-K", ":", "-H", "a=1", "-H", "b", "-z", "zstd", "-q"],
        stdin="k1:v1\nk2:v2\n",
        bootstrap=bootstrap,
    )
    ran = run_millstream("consume", topic, "-e", "-f", r"%o %k=%v %h\n", bootstrap=bootstrap)
    assert ran.output == "0 k1=v1 a=1,b=NULL\n1 k2=v2 a=1,b=NULL\n"


def test_a_client_option_has_the_last_word(bootstrap: str) -> None:
    name = f"cli-{uuid.uuid4().hex[:10]}"
    run_millstream("topic", "create", name, "-p", "50", bootstrap=bootstrap)
    keys = [f"key-{number}" for number in range(20)]
    run_millstream(
        *["produce", name, "-K", ":", "-X", "partitioner=consistent", "-X", "acks=1"],
        stdin="".join(f"{key}:\n" for key in keys),
        bootstrap=bootstrap,
    )
    ran = run_millstream("consume", name, "-e", "-f", r"%k %p\n", bootstrap=bootstrap)
    # The hash that librdkafka's option names, and not Java's.
    expected = {f"{key} {zlib.crc32(key.encode()) % 50}" for key in keys}
    assert set(ran.output.splitlines()) == expected


def test_json_lines_copy_a_topic_record_for_record(bootstrap: str, topic: str) -> None:
    lines = '{"key": "k", "value": null}\n{"value_base64": "/wA=", "timestamp": 1769860800000}\n'
    assert run_millstream("produce", topic, "-J", stdin=lines, bootstrap=bootstrap).exit_code == 0
    first = run_millstream("consume", topic, "-e", "-J", bootstrap=bootstrap)
    run_millstream("produce", topic, "-J", stdin=first.output, bootstrap=bootstrap)
    records = [
        json.loads(line)
        for line in run_millstream(
            "consume", topic, "-e", "-J", bootstrap=bootstrap
        ).output.splitlines()
    ]
    for record in records:
        del record["offset"]
    assert len(records) == 4
    assert records[:2] == records[2:]
    assert records[1]["value_base64"] == "/wA="
    assert records[1]["timestamp"] == 1_769_860_800_000


@pytest.mark.parametrize(
    ("start", "values"),
    [
        ("end", []),
        ("-2", ["3", "4"]),
        ("3", ["3", "4"]),
        ("@1769860802000", ["2", "3", "4"]),
        ("@-1h", []),
    ],
)
def test_reading_starts_where_it_is_told(
    bootstrap: str, topic: str, start: str, values: list[str]
) -> None:
    lines = "".join(
        json.dumps({"value": str(i), "timestamp": 1_769_860_800_000 + i * 1000}) + "\n"
        for i in range(5)
    )
    run_millstream("produce", topic, "-J", stdin=lines, bootstrap=bootstrap)
    ran = run_millstream("consume", topic, "-e", "-o", start, bootstrap=bootstrap)
    assert ran.output.split() == values


def test_an_offset_outside_the_log_starts_at_the_near_end_and_says_so(
    bootstrap: str, topic: str
) -> None:
    run_millstream("produce", topic, stdin="a\nb\n", bootstrap=bootstrap)
    ran = run_millstream("consume", topic, "-e", "-o", "500", bootstrap=bootstrap)
    assert ran == Ran(0, "", f"millstream: {topic}-0 holds 0 to 2, starting at 2\n")


def test_a_topic_is_listed_and_described_in_json(bootstrap: str) -> None:
    name = f"cli-{uuid.uuid4().hex[:10]}"
    options = ["-p", "3", "-c", "retention.ms=3600000"]
    run_millstream("topic", "create", name, *options, bootstrap=bootstrap)
    listed = json.loads(run_millstream("topic", "list", "--json", bootstrap=bootstrap).output)
    assert {"name": name, "partitions": 3, "replicas": 1} in listed
    run_millstream("produce", name, "-p", "1", stdin="x\ny\n", bootstrap=bootstrap)
    described = json.loads(
        run_millstream("topic", "describe", name, "--json", bootstrap=bootstrap).output
    )
    assert described["configs"] == {"retention.ms": "3600000"}
    assert [p["log_end_offset"] for p in described["partitions"]] == [0, 2, 0]


def test_a_topic_is_described_for_people(bootstrap: str, topic: str) -> None:
    ran = run_millstream("topic", "describe", topic, bootstrap=bootstrap)
    assert f"topic     {topic}\n" in ran.output
    assert "LOG-END-OFFSET" in ran.output


def test_creating_a_topic_twice_fails_unless_that_is_allowed(bootstrap: str, topic: str) -> None:
    ran = run_millstream("topic", "create", topic, bootstrap=bootstrap)
    assert ran == Ran(1, "", f"millstream: topic {topic} already exists\n")
    ran = run_millstream("topic", "create", topic, "--if-not-exists", bootstrap=bootstrap)
    assert ran == Ran(0, "", "")


def test_deleting_asks_and_without_anyone_to_ask_it_refuses(bootstrap: str, topic: str) -> None:
    ran = run_millstream("topic", "delete", topic, bootstrap=bootstrap)
    assert ran.exit_code == 1
    assert "requires -y" in ran.errors
    ran = run_millstream("topic", "delete", topic, "-y", bootstrap=bootstrap)
    assert ran == Ran(0, "", f"deleted {topic}\n")
    assert topic not in run_millstream("topic", "list", bootstrap=bootstrap).output


@pytest.mark.parametrize(
    "arguments",
    [
        ["consume", "no-such-topic"],
        ["produce", "no-such-topic"],
        ["topic", "describe", "no-such-topic"],
        ["topic", "delete", "no-such-topic", "-y"],
    ],
)
def test_a_missing_topic_is_one_line_and_never_created(
    bootstrap: str, arguments: list[str]
) -> None:
    ran = run_millstream(*arguments, stdin="x\n", bootstrap=bootstrap)
    assert ran.exit_code == 1
    assert ran.output == ""
    assert ran.errors.count("\n") == 1
    assert "topic no-such-topic does not exist" in ran.errors
    assert "no-such-topic" not in run_millstream("topic", "list", bootstrap=bootstrap).output


@pytest.mark.parametrize("command", [["consume"], ["produce"], ["topic", "describe"]])
def test_an_empty_name_is_one_line(bootstrap: str, command: list[str]) -> None:
    ran = run_millstream(*command, "", bootstrap=bootstrap)
    assert ran == Ran(2, "", "millstream: the name of the topic is empty\n")


def test_a_missing_partition_is_named(bootstrap: str, topic: str) -> None:
    ran = run_millstream("consume", topic, "-p", "7", bootstrap=bootstrap)
    assert ran == Ran(1, "", f"millstream: topic {topic} has no partition 7; it has 0 to 0\n")


def test_a_bad_line_stops_after_the_lines_before_it(bootstrap: str, topic: str) -> None:
    ran = run_millstream("produce", topic, "-K", ":", stdin="a:1\nwrong\n", bootstrap=bootstrap)
    assert ran.exit_code == 1
    assert "line 2: no ':' between key and value" in ran.errors
    assert run_millstream("consume", topic, "-e", bootstrap=bootstrap).output == "1\n"


def test_a_record_above_the_limit_is_refused_in_one_line(bootstrap: str) -> None:
    name = f"cli-{uuid.uuid4().hex[:10]}"
    run_millstream("topic", "create", name, "-c", "max.message.bytes=1000", bootstrap=bootstrap)
    ran = run_millstream("produce", name, stdin="x" * 5000 + "\n", bootstrap=bootstrap)
    assert ran.exit_code == 1
    assert ran.errors.count("\n") == 1
    assert "MSG_SIZE_TOO_LARGE" in ran.errors


def test_a_reader_that_leaves_ends_it_in_silence(bootstrap: str, topic: str) -> None:
    lines = "".join(f"{i:0100}\n" for i in range(5000))
    run_millstream("produce", topic, stdin=lines, bootstrap=bootstrap)
    process = subprocess.Popen(
        [sys.executable, "-m", "millstream", "consume", topic, "-e", "-b", bootstrap],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    os.read(process.stdout.fileno(), 100)
    process.stdout.close()
    assert process.stderr is not None
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait(30) == 141
    assert errors == b""


def test_following_a_topic_ends_with_130_at_ctrl_c(bootstrap: str, topic: str) -> None:
    run_millstream("produce", topic, stdin="first\n", bootstrap=bootstrap)
    with subprocess.Popen(
        [sys.executable, "-m", "millstream", "consume", topic, "-b", bootstrap],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"first\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr is not None
        assert b"Traceback" not in process.stderr.read()


def test_a_topic_id_is_written_as_kafka_writes_it() -> None:
    from millstream.cli.topic import _id_text

    assert _id_text("U7cI4/UPSU6Prru+M9UxpQ") == "U7cI4_UPSU6Prru-M9UxpQ"


def test_a_tab_may_separate_keys_and_values(bootstrap: str, topic: str) -> None:
    run_millstream("produce", topic, "-K", r"\t", stdin="a\tb\n", bootstrap=bootstrap)
    ran = run_millstream("consume", topic, "-e", "-f", "%k=%v", bootstrap=bootstrap)
    assert ran.output == "a=b"
    ran = run_millstream("produce", topic, "-K", r"\q", bootstrap=bootstrap)
    assert (ran.exit_code, r"\q is not an escape" in ran.errors) == (2, True)


def test_several_topics_and_patterns_of_names(bootstrap: str) -> None:
    mark = uuid.uuid4().hex[:10]
    names = [f"{mark}-a", f"{mark}-b", f"{mark}-c"]
    for name in names:
        run_millstream("topic", "create", name, bootstrap=bootstrap)
        run_millstream("produce", name, stdin=f"{name}\n", bootstrap=bootstrap)
    ran = run_millstream("consume", *names[:2], "-e", bootstrap=bootstrap)
    assert sorted(ran.output.split()) == names[:2]
    ran = run_millstream("consume", f"{mark}-[bc]", "--regex", "-e", bootstrap=bootstrap)
    assert sorted(ran.output.split()) == names[1:]
    ran = run_millstream("consume", f"{mark}-x.*", "--regex", bootstrap=bootstrap)
    assert (ran.exit_code, "no topic matches" in ran.errors) == (1, True)


def test_ranges_end_by_themselves(bootstrap: str, topic: str) -> None:
    lines = "".join(
        json.dumps({"value": str(i), "timestamp": 1_769_860_800_000 + i * 1000}) + "\n"
        for i in range(6)
    )
    run_millstream("produce", topic, "-J", stdin=lines, bootstrap=bootstrap)
    for span, values in [("1:3", "12"), (":2", "01"), ("@1769860801000:@1769860804000", "123")]:
        ran = run_millstream("consume", topic, "-o", span, "-f", "%v", bootstrap=bootstrap)
        assert (ran.exit_code, ran.output) == (0, values)


def test_filters_choose_records(bootstrap: str, topic: str) -> None:
    lines = "alice:5\nbob:7\nalice:9\n"
    run_millstream("produce", topic, "-K", ":", "-H", "h=1", stdin=lines, bootstrap=bootstrap)
    for options, values in [
        (["--key", "^al"], "59"),
        (["--value", "[79]"], "79"),
        (["--key", "^al", "--value", "9"], "9"),
        (["--grep", "b.b|9"], "79"),
        (["--header", "h=2"], ""),
    ]:
        ran = run_millstream("consume", topic, "-e", "-f", "%v", *options, bootstrap=bootstrap)
        assert (ran.exit_code, ran.output) == (0, values)


def test_a_group_continues_where_it_left_off(bootstrap: str, topic: str) -> None:
    group = f"group-of-{topic}"
    reading = ["consume", topic, "--group", group, "-e", "-f", "%v"]
    run_millstream("produce", topic, stdin="1\n2\n", bootstrap=bootstrap)
    assert run_millstream(*reading, bootstrap=bootstrap).output == "12"
    run_millstream("produce", topic, stdin="3\n", bootstrap=bootstrap)
    assert run_millstream(*reading, bootstrap=bootstrap).output == "3"
    ran = run_millstream("group", "lag", group, "--json", bootstrap=bootstrap)
    assert json.loads(ran.output) == [{"group": group, "topic": topic, "lag": 0}]


def test_a_group_commits_no_record_that_nobody_could_read(bootstrap: str, topic: str) -> None:
    group = f"group-of-{topic}"
    run_millstream("produce", topic, stdin="1\n2\n3\n", bootstrap=bootstrap)
    with start("consume", topic, "--group", group, bootstrap=bootstrap) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(30) == 141
    reading = ["consume", topic, "--group", group, "-e", "-f", "%v"]
    assert run_millstream(*reading, bootstrap=bootstrap).output == "123"


def test_a_group_commits_what_it_filtered_out(bootstrap: str, topic: str) -> None:
    reading = ["consume", topic, "--group", f"group-of-{topic}", "-e", "-f", "%v"]
    run_millstream("produce", topic, stdin="1\n2\n3\n", bootstrap=bootstrap)
    assert run_millstream(*reading, "--value", "2", bootstrap=bootstrap).output == "2"
    assert run_millstream(*reading, bootstrap=bootstrap).output == ""


def start(*arguments: str, bootstrap: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "millstream", *arguments, "-b", bootstrap],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_a_reader_that_leaves_ends_it_also_on_an_idle_topic(bootstrap: str, topic: str) -> None:
    run_millstream("produce", topic, stdin="first\n", bootstrap=bootstrap)
    with start("consume", topic, bootstrap=bootstrap) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"first\n"
        process.stdout.close()
        assert process.wait(30) == 141
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_a_full_device_is_one_line(bootstrap: str, topic: str) -> None:
    run_millstream("produce", topic, stdin="first\n", bootstrap=bootstrap)
    for arguments in (["consume", topic, "-e"], ["topic", "list"]):
        with open("/dev/full", "wb") as full:
            done = subprocess.run(
                [sys.executable, "-m", "millstream", *arguments, "-b", bootstrap],
                stdout=full,
                stderr=subprocess.PIPE,
                check=False,
                timeout=60,
            )
        assert done.returncode == 1
        assert done.stderr == b"millstream: cannot write the output: No space left on device\n"


def test_an_interrupted_produce_counts_what_was_acknowledged(bootstrap: str, topic: str) -> None:
    with start("produce", topic, bootstrap=bootstrap) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"1\n2\n")
        process.stdin.flush()
        ran = run_millstream("consume", topic, "-n", "2", bootstrap=bootstrap)
        assert ran.output == "1\n2\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr.read() == (
            b"millstream: interrupted: 2 records acknowledged, 0 not\n"
        )


def test_a_broker_that_dies_is_named_within_seconds(tmp_path: Path) -> None:
    with MillstreamNode(tmp_path / "data", "--dev") as node:
        run_millstream("topic", "create", "t", bootstrap=node.bootstrap)
        run_millstream("produce", "t", stdin="0\n", bootstrap=node.bootstrap)
        with (
            start("consume", "t", bootstrap=node.bootstrap) as reader,
            start("produce", "t", bootstrap=node.bootstrap) as writer,
        ):
            assert reader.stdout is not None
            assert reader.stdout.readline() == b"0\n"
            assert writer.stdin is not None
            writer.stdin.write(b"1\n")
            writer.stdin.flush()
            assert reader.stdout.readline() == b"1\n"
            node.kill()
            writer.stdin.write(b"2\n")
            writer.stdin.flush()
            for process, counts in ((reader, b""), (writer, b"(1 record acknowledged, 1 not)\n")):
                assert process.wait(30) == 4
                assert process.stderr is not None
                errors = process.stderr.read()
                assert errors.count(b"refused the connection") == 1
                assert errors.endswith(counts)
            writer.stdin.close()


@pytest.mark.java
def test_10_000_keys_are_where_javas_producer_puts_them(bootstrap: str) -> None:
    skip_if_java_is_left_out()
    ours, theirs = (f"keys-{uuid.uuid4().hex[:10]}" for _ in range(2))
    run_millstream("topic", "create", ours, theirs, "-p", "12", bootstrap=bootstrap)
    lines = "".join(f"key {i} é\tx\n" for i in range(10_000))
    run_millstream("produce", ours, "-K", r"\t", stdin=lines, bootstrap=bootstrap)
    tool = ["org.apache.kafka.tools.ConsoleProducer", "--reader-property", "parse.key=true"]
    subprocess.run(
        [require("java"), "-Xmx256m", "-Dfile.encoding=UTF-8", "-cp", classpath(), *tool]
        + ["--bootstrap-server", bootstrap, "--topic", theirs],
        input=lines.encode(),
        capture_output=True,
        check=True,
        timeout=120,
    )

    def places(topic: str) -> list[str]:
        ran = run_millstream("consume", topic, "-e", "-f", r"%k %p\n", bootstrap=bootstrap)
        return sorted(ran.output.splitlines())

    found = places(ours)
    assert len(found) == 10_000
    assert found == places(theirs)
