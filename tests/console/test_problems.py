from millstream.console.facts import ClusterFacts, GroupFacts, NodeFacts, PartitionFacts, TopicFacts
from millstream.console.problems import find_problems
from millstream.console.sampling import note_unmoved
from millstream.model import TopicPartition


def cluster(*partitions: PartitionFacts, free: int = 50, controller: int = 1) -> ClusterFacts:
    node = NodeFacts(1, "h", 9092, None, True, 100, free)
    return ClusterFacts(0, "c", controller, [node], {"t": TopicFacts("t", False, list(partitions))})


def healthy() -> PartitionFacts:
    return PartitionFacts(0, 1, 0, [1], [1], 0, 10)


def titles(facts: ClusterFacts) -> list[str]:
    return [problem.title for problem in find_problems(facts)]


def test_a_healthy_cluster_has_none() -> None:
    assert titles(cluster(healthy())) == []


def test_offline_partitions_and_dead_nodes() -> None:
    found = find_problems(cluster(PartitionFacts(0, -1, 0, [2], [2])))
    assert {problem.level for problem in found} == {"error"}
    assert {problem.title for problem in found} == {"1 partition offline", "Node 2 is down"}


def test_under_replicated_partitions() -> None:
    assert "1 partition under-replicated" in titles(cluster(PartitionFacts(0, 1, 0, [1, 2], [1])))


def test_no_controller_and_a_full_disk() -> None:
    assert titles(cluster(healthy(), free=5, controller=-1)) == [
        "No controller",
        "The disk of node 1 is 95 % full",
    ]


def test_groups_without_members_that_stay_behind() -> None:
    facts = cluster(healthy())
    facts.taken_at_ms = 3_600_000
    facts.groups["g"] = GroupFacts("g", "Empty", "classic", {TopicPartition("t", 0): 4})
    assert titles(facts) == ["Group g has no members and is behind"]
    facts.groups["h"] = GroupFacts("h", "Empty", "classic", {TopicPartition("t", 0): 4})
    assert titles(facts) == ["2 groups have no members and are behind"]
    # It still commits: a program that assigns its partitions itself.
    facts.groups["h"].unmoved_since_ms = 3_500_000
    facts.groups["g"].state = "Stable"
    assert titles(facts) == []


def test_a_group_that_commits_has_moved() -> None:
    before, after = cluster(healthy()), cluster(healthy())
    before.taken_at_ms, after.taken_at_ms = 1_000, 2_000
    for facts, offset in ((before, 4), (after, 5)):
        facts.groups["moves"] = GroupFacts("moves", "Empty", "", {TopicPartition("t", 0): offset})
        facts.groups["stays"] = GroupFacts("stays", "Empty", "", {TopicPartition("t", 0): 1})
    note_unmoved(None, before)
    note_unmoved(before, after)
    assert after.groups["moves"].unmoved_since_ms == 2_000
    assert after.groups["stays"].unmoved_since_ms == 1_000


def test_what_could_not_be_read_is_said() -> None:
    facts = cluster(healthy())
    facts.failures.append("node 1: timed out")
    assert find_problems(facts)[0].detail == "node 1: timed out"
