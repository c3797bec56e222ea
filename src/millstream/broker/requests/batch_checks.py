"""Batches of a produce that take more than a look: what is done on the loop, and what in a thread.

A batch that is neither compressed nor large is checked by its append. One that has to be
unpacked is checked here, before anything is appended; if that takes longer than about a
millisecond, or the topic asks for another codec, it is done in a thread.
"""

import asyncio
from collections.abc import Callable, Container
from functools import partial
from typing import Final

from millstream.broker.node.state import NodeState
from millstream.broker.requests.admission import Admissions
from millstream.broker.security.authorizer import ClientConnection
from millstream.errors import KafkaError
from millstream.records.batch import CODEC_MASK, HEADER_BYTES
from millstream.records.validation import HEAVY, LIGHT, LIGHT_PLAIN, CheckedBatch, TooHeavy
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
    done: Container[Place] = (),
) -> tuple[Ready, Heavy]:
    """The batches that have to be unpacked, checked; and those that belong in a thread."""
    ready: Ready = {}
    heavy: Heavy = {}
    for number, topic in enumerate(body.topics):
        for place, (index, data) in enumerate(topic.partitions):
            partition = node.partitions.find(topic.name, index)
            if partition is None or not data or _is_light(data, partition):
                continue
            terms = admissions.of(connection, partition).write_terms(
                is_acks_all=body.acks == ACKS_ALL,
                is_transactional=body.transactional_id is not None,
            )
            if terms.refusal is not None or (number, place) in done:
                continue
            config, now_ms = partition.log.config, node.clock.now_ms()
            work = partial(ready_batch, rules=terms.rules, config=config, now_ms=now_ms)
            try:
                ready[number, place] = work(data, decoded_bytes_max=LIGHT)
            except TooHeavy:
                heavy[number, place] = work
            except KafkaError as error:
                ready[number, place] = error.kept()
    return ready, heavy


def _is_light(data: memoryview, partition: Partition) -> bool:
    """Nothing has to be unpacked, and there is little to look at."""
    if len(data) > LIGHT_PLAIN or partition.log.config.compression_type is not None:
        return False
    return len(data) < HEADER_BYTES or not data[_ATTRIBUTES_BYTE] & CODEC_MASK


async def check_heavy(
    body: ProduceRequest, place: Place, work: Callable[..., CheckedBatch]
) -> CheckedBatch | KafkaError:
    """To be called for one batch at a time: each may take the memory of a large batch unpacked.
    The records must be a copy, for the frame's memory is used again."""
    number, number_in_topic = place
    data = body.topics[number].partitions[number_in_topic][1]
    call = partial(work, data, decoded_bytes_max=HEAVY)
    try:
        return await asyncio.get_running_loop().run_in_executor(None, call)
    except KafkaError as error:
        return error.kept()
