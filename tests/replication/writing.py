"""Producing to a partition as a request does, for tests."""

from millstream.broker.requests.admission import Admissions
from millstream.model import ANONYMOUS
from millstream.records.validation import produced_batch
from millstream.replication.partition import Partition
from millstream.storage.log import Appended, Batches
from tests.storage.logs import NOW_MS


def produce(
    partition: Partition, batches: bytearray | Batches, *, is_acks_all: bool = False
) -> Appended:
    admission = Admissions(partition._generation).of(ANONYMOUS, partition)
    terms = admission.write_terms(is_acks_all=is_acks_all, is_transactional=False)
    if isinstance(batches, bytearray):
        batches = produced_batch(memoryview(batches))
    return partition.append(batches, terms, now_ms=NOW_MS)
