"""The fixtures, as another project's tests see them."""

import subprocess
import sys
from pathlib import Path

_USER_TESTS = """
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

seen = []

def topics(bootstrap):
    return AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=10).topics

def test_first(kafka_bootstrap, make_topic):
    topic = make_topic(partitions=3)
    assert len(topics(kafka_bootstrap)[topic].partitions) == 3
    seen.append((kafka_bootstrap, topic))

def test_second(kafka, kafka_bootstrap, make_topic):
    [(bootstrap, old_topic)] = seen
    assert kafka.bootstrap == kafka_bootstrap == bootstrap
    assert make_topic() != old_topic
    assert old_topic not in topics(kafka_bootstrap)
"""


def test_tests_share_a_broker_and_get_topics_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "test_user.py").write_text(_USER_TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_user.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
