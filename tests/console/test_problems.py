from millstream.console.facts import ClusterFacts, GroupFacts, NodeFacts, PartitionFacts, TopicFacts
from millstream.console.problems import find_problems
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


def test_a_group_without_members_that_is_behind() -> None:
    facts = cluster(healthy())
    facts.groups["g"] = GroupFacts("g", "Empty", "classic", {TopicPartition("t", 0): 4})
    assert titles(facts) == ["Group g has no members and is behind"]
    facts.groups["g"].state = "Stable"
    assert titles(facts) == []


def test_what_could_not_be_read_is_said() -> None:
    facts = cluster(healthy())
    facts.failures.append("node 1: timed out")
    assert find_problems(facts)[0].detail == "node 1: timed out"
