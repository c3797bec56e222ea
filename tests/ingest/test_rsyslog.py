"""rsyslog's `omkafka` with the lines of the documentation: its messages arrive as RFC 5424.

Covers broker, ingest.
"""

import re
import socket
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.support.broker import Broker
from tests.support.tools import require
from tests.support.waiting import wait_until

DOCUMENT = Path(__file__).parents[2] / "docs" / "pipeline.md"
SECONDS_MAX = 30


def documented(bootstrap: str) -> str:
    found = re.search(r'```\n(module\(load="omkafka"\).*?)```', DOCUMENT.read_text(), re.DOTALL)
    assert found is not None
    assert found[1].count("127.0.0.1:9092") == 1
    return found[1].replace("127.0.0.1:9092", bootstrap)


@pytest.mark.slow
def test_messages_of_rsyslog_arrive_as_the_documentation_sets_it_up(tmp_path: Path) -> None:
    entrance = tmp_path / "socket"
    settings = tmp_path / "rsyslog.conf"
    with Broker(topics={"logs": 1}) as broker:
        settings.write_text(
            'module(load="imuxsock" SysSock.Use="off")\n'
            f'input(type="imuxsock" Socket="{entrance}")\n' + documented(broker.bootstrap)
        )
        command = [require("rsyslogd"), "-n", "-f", str(settings), "-i", str(tmp_path / "pid")]
        daemon = subprocess.Popen(command, cwd=tmp_path)
        try:
            wait_until(entrance.exists, "rsyslogd listens", seconds_max=SECONDS_MAX)
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.sendto("<35>sshd[354]: Failed password, ü".encode(), str(entrance))
            key, value = first_record(broker)
        finally:
            daemon.terminate()
            daemon.wait(SECONDS_MAX)
    assert key == b"syslog"
    time_and_host = rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S* \S+"
    text = "sshd 354 - -  Failed password, ü".encode()
    assert re.fullmatch(rb"<35>1 " + time_and_host + b" " + text, value), value


def first_record(broker: Broker) -> tuple[bytes, bytes]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "of-the-test"})
    consumer.assign([TopicPartition("logs", 0, 0)])
    message = consumer.poll(SECONDS_MAX)
    consumer.close()
    assert message is not None
    assert message.error() is None
    return message.key(), message.value()
