"""Batches of a produce that take more than a look: what is done on the loop, and what in a thread.

A batch that is neither compressed nor large is checked by its append. One that has to be
unpacked is checked here, before anything is appended. What is unpacked of all batches of a request
takes about a millisecond; what exceeds that, or is stored under another codec, is checked in a
thread.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from millstream.broker.node.state import NodeState
from millstream.broker.requests.admission import Admissions
from millstream.broker.security.authorizer import ClientConnection
from millstream.errors import KafkaError
from millstream.records.batch import CODEC_MASK, HEADER_BYTES
from millstream.records.validation import (
    HEAVY,
    LIGHT,
    LIGHT_PLAIN,
    BatchRules,
    CheckedBatch,
    TooHeavy,
)
from millstream.replication.partition import Partition
from millstream.storage.incoming import ready_batch
from millstream.wire.produce import ACKS_ALL, ProduceRequest

# Where a batch is in a request: the number of the topic, and the place in it.
Place = tuple[int, int]
# Batches that were checked before the append, or what is wrong with them.
Ready = dict[Place, CheckedBatch | KafkaError]
# Batches that take long to check, and what checks them.
Heavy = dict[Place, Callable[..., CheckedBatch]]

# The low byte of a batch's attributes.
_ATTRIBUTES_BYTE: Final = 22


def make_ready(
    node: NodeState,
    admissions: Admissions,
    connection: ClientConnection,
    body: ProduceRequest,
    done: Ready | None = None,
) -> tuple[Ready, Heavy]:
    """The batches that have to be unpacked, checked; and those that belong in a thread. Without
    those that are done, unless other rules hold by now."""
    ready: Ready = {}
    heavy: Heavy = {}
    # For all of them together: a hundred batches of a hundred bytes may each unpack to a megabyte.
    left_bytes = LIGHT
    for number, topic in enumerate(body.topics):
        for place, (index, data) in enumerate(topic.partitions):
            partition = node.partitions.find(topic.name, index)
            if partition is None or not data or _is_light(data, partition):
                continue
            terms = admissions.of(connection, partition).write_terms(
                is_acks_all=body.acks == ACKS_ALL,
                is_transactional=body.transactional_id is not None,
            )
            if terms.refusal is not None:
                continue
            if done and _holds(done.get((number, place)), terms.rules):
                continue
            config, now_ms = partition.log.config, node.clock.now_ms()
            work = partial(ready_batch, rules=terms.rules, config=config, now_ms=now_ms)
            is_packed = _is_packed(data)
            if is_packed and left_bytes <= 0:
                heavy[number, place] = work
                continue
            try:
                batch = ready[number, place] = work(data, decoded_bytes_max=left_bytes)
                left_bytes -= batch.decoded_bytes
            except KafkaError as error:
                if is_packed:
                    # As much may have been unpacked before that was found.
                    left_bytes = 0
                if isinstance(error, TooHeavy):
                    heavy[number, place] = work
                else:
                    ready[number, place] = error.kept()
    return ready, heavy


def _holds(checked: CheckedBatch | KafkaError | None, rules: BatchRules) -> bool:
    """Was the batch checked, and against these rules?"""
    return isinstance(checked, KafkaError) or (checked is not None and checked.rules == rules)


def _is_light(data: memoryview, partition: Partition) -> bool:
    """Nothing has to be unpacked, and there is little to look at."""
    if len(data) > LIGHT_PLAIN or partition.log.config.compression_type is not None:
        return False
    return not _is_packed(data)


def _is_packed(data: memoryview) -> bool:
    return len(data) >= HEADER_BYTES and data[_ATTRIBUTES_BYTE] & CODEC_MASK != 0


async def check_heavy(
    body: ProduceRequest, place: Place, work: Callable[..., CheckedBatch]
) -> CheckedBatch | KafkaError:
    """To be called for one batch at a time (`heavy_checks`). The records must be a copy, for the
    frame's memory is used again."""
    number, number_in_topic = place
    data = body.topics[number].partitions[number_in_topic][1]
    call = partial(work, data, decoded_bytes_max=HEAVY)
    try:
        return await asyncio.get_running_loop().run_in_executor(None, call)
    except KafkaError as error:
        return error.kept()
