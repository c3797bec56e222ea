"""The arithmetic of `millstream cluster advise`."""

from dataclasses import replace

import pytest

from millstream.cluster.sizing import Load, Rates, TopicLoad, advise, judge_topic

RATES = Rates(
    partition_mb_per_second=100.0,
    consumer_mb_per_second=50.0,
    disk_mb_per_second=400.0,
    cpu_seconds_per_mb_in=0.002,
    cpu_seconds_per_mb_out=0.001,
)
WEEK_SECONDS = 7 * 86_400


def test_a_small_load_needs_a_node_for_each_replica():
    advice = advise(Load(1.0, WEEK_SECONDS, replicas=3), RATES)
    assert (advice.nodes, advice.partitions, advice.consumers) == (3, 3, 1)
    assert advice.disk_gb_per_node == pytest.approx(1.0 * WEEK_SECONDS / 0.8 / 1000)
    assert advice.cache_gb_per_node == pytest.approx(0.3)


def test_consumers_that_do_little_want_partitions():
    slow = replace(RATES, consumer_mb_per_second=10.0)
    advice = advise(Load(50.0, WEEK_SECONDS, replicas=3), slow)
    assert advice.consumers == 10
    assert advice.partitions == 12


def test_a_large_load_needs_processors_and_disks():
    # 600 MB/s in at 2 ms, 600 out at 1 ms: 1.8 cores, half of each used.
    advice = advise(Load(200.0, WEEK_SECONDS, replicas=3), RATES)
    assert advice.nodes == 4
    slow_disk = replace(RATES, disk_mb_per_second=100.0)
    assert advise(Load(200.0, WEEK_SECONDS, replicas=3), slow_disk).nodes == 12


def test_every_figure_comes_with_its_arithmetic():
    advice = advise(Load(200.0, WEEK_SECONDS, replicas=3), RATES)
    assert [one.name for one in advice.figures] == [
        "partitions",
        "consumers",
        "nodes",
        "disk",
        "page cache",
    ]
    text = "\n".join(line for one in advice.figures for line in one.arithmetic)
    assert "in: 200 MB/s x 3 replicas = 600 MB/s" in text
    assert "600 x 2 ms + 600 x 1 ms = 1.8 cores, one a node, 50% used: 4" in text
    assert "200 MB/s x 7 days x 3 replicas / 4 nodes, 80% filled" in text


@pytest.mark.parametrize(
    ("topic", "needed", "verdict"),
    [
        (TopicLoad("t", 3, 0.0), 1, "right"),
        (TopicLoad("t", 12, 0.0), 1, "right"),
        (TopicLoad("t", 13, 0.0), 1, "too many"),
        (TopicLoad("t", 13, 0.0, members=6), 6, "right"),
        (TopicLoad("t", 3, 0.0, members=4), 4, "too few"),
        (TopicLoad("t", 1, 30.0), 2, "too few"),
        (TopicLoad("t", 2, 30.0), 2, "right"),
    ],
)
def test_a_topic_is_judged_by_its_load_and_its_readers(topic, needed, verdict):
    judged = judge_topic(topic, RATES, nodes=3)
    assert (judged.needed, judged.verdict) == (needed, verdict)
    assert bool(judged.why) == (verdict != "right")
