"""Producing to a partition as a request does, for tests."""

import time

from millstream.broker.requests.admission import Admissions
from millstream.broker.requests.permissions import Permissions
from millstream.broker.security.audit import AuditLog
from millstream.model import ANONYMOUS, Principal
from millstream.records.validation import produced_batch
from millstream.replication.admission import Generation
from millstream.replication.partition import Partition
from millstream.storage.log import Appended, Batches
from tests.storage.logs import NOW_MS


class Asker:
    """A connection, as far as permissions depend on it."""

    address = "127.0.0.1"
    proved_node_id = -1

    def __init__(self, principal: Principal = ANONYMOUS) -> None:
        self.principal = principal


def admissions_of(generation: Generation) -> Admissions:
    return Admissions(generation, Permissions(generation, AuditLog(time.monotonic)))


def produce(
    partition: Partition, batches: bytearray | Batches, *, is_acks_all: bool = False
) -> Appended:
    admission = admissions_of(partition._generation).of(Asker(), partition)
    terms = admission.write_terms(is_acks_all=is_acks_all, is_transactional=False)
    if isinstance(batches, bytearray):
        batches = produced_batch(memoryview(batches))
    return partition.append(batches, terms, now_ms=NOW_MS)
