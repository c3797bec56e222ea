"""One example of everything that nodes write for each other: znodes, and requests of their own.

`python -m tests.golden.node_formats` prints them as the present version writes them: the file of a
new level in `levels/`.
"""

import json
import uuid

from millstream.cluster import znodes
from millstream.cluster.state import BrokerState, Endpoint, LogEnd, PartitionState, TopicState
from millstream.model import TopicPartition
from millstream.wire.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from millstream.wire.apis.prove_node import ProveNodeRequest
from millstream.wire.apis.tell_partition_states import (
    TellPartitionStatesRequest,
    ToldPartitionState,
)
from millstream.wire.apis.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from millstream.wire.codec import request_writer
from millstream.wire.message import Request

TOPIC_ID = uuid.UUID(int=0x1234_5678_9ABC_DEF0_1234_5678_9ABC_DEF0)
STATE = PartitionState(
    leader=2,
    leader_epoch=7,
    isr=(2, 3),
    replicas=(1, 2, 3, 4),
    version=5,
    min_isr=2,
    elr=(1,),
    last_known_elr=(4,),
    adding=(4,),
    removing=(1,),
    writer_token="token",
)
TOPIC = TopicState("orders", TOPIC_ID, [STATE])
BROKER = BrokerState(
    3,
    (Endpoint("PLAINTEXT", "host3", 9092), Endpoint("SSL", "::1", 9093, "SSL")),
    rack="r1",
    epoch=4,
    is_stopping=True,
    log_ends=(LogEnd(TopicPartition("orders", 0), 7, 6, 100),),
)
# With the versions that nodes use among themselves.
REQUESTS: dict[str, tuple[Request, int]] = {
    "ProveNode": (ProveNodeRequest(node_id=3, proof=b"proof"), 0),
    "TellPartitionStates": (
        TellPartitionStatesRequest(
            states=[ToldPartitionState(topic="orders", partition=1, version=5, data=b"{}")]
        ),
        0,
    ),
    "WriteTxnMarkers": (
        WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=11,
                    producer_epoch=2,
                    transaction_result=True,
                    topics=[WritableTxnMarkerTopic(name="orders", partition_indexes=[0, 1])],
                    coordinator_epoch=9,
                )
            ]
        ),
        1,
    ),
    "AddPartitionsToTxn": (
        AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    transactional_id="t",
                    producer_id=11,
                    producer_epoch=2,
                    verify_only=True,
                    topics=[AddPartitionsToTxnTopic(name="orders", partitions=[0])],
                )
            ]
        ),
        5,
    ),
}


def written() -> dict[str, str]:
    """Znodes as their text, requests without their header in hexadecimal digits."""
    found = {
        "/brokers/ids/3": znodes.encode_broker(BROKER, 1_700_000_000_000),
        "/brokers/epochs/3": znodes.encode_incarnation("token", is_suspect=True),
        "/brokers/topics/orders": znodes.encode_topic(TOPIC),
        "/brokers/topics/orders/partitions/0/state": znodes.encode_partition(STATE, 6, TOPIC_ID),
        "/controller": znodes.encode_controller(3, "token", 1_700_000_000_000),
        "/cluster/id": znodes.encode_cluster_id("abc"),
        "/latest_producer_id_block": znodes.encode_producer_block(3, range(1000, 2000)),
        "/config/topics/orders": znodes.encode_config({"retention.ms": "1000"}),
    }
    texts = {path: data.decode() for path, data in found.items()}
    for name, (request, version) in REQUESTS.items():
        frame = bytearray()
        request_writer(type(request), version)(frame, request)
        texts[f"{name} {version}"] = frame.hex()
    return texts


if __name__ == "__main__":
    print(json.dumps(written(), indent=1, sort_keys=True))
