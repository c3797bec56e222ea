from millstream.cli.cluster_elect import needing
from tests.cli.cluster_views import partition, view


def test_only_partitions_that_another_replica_leads_need_an_election() -> None:
    seen = view(partition(0), partition(1, leader=2), partition(2, leader=-1, in_sync=()))
    places = list(seen.partitions)
    assert [where.partition for where in needing(seen, places, unclean=False)] == [1, 2]
    assert [where.partition for where in needing(seen, places, unclean=True)] == [2]


def test_the_first_of_a_moves_target_is_preferred() -> None:
    seen = view(partition(0, leader=2, replicas=(1, 2, 3), removing=(1,)))
    assert needing(seen, list(seen.partitions), unclean=False) == []
