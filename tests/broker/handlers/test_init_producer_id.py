from millstream.errors import KafkaCode
from millstream.wire.apis.find_coordinator import FindCoordinatorRequest
from millstream.wire.apis.init_producer_id import InitProducerIdRequest
from tests.support.raw_client import RawClient


def test_version_6_is_read_and_two_phase_commit_refused(client: RawClient) -> None:
    fields = {
        "transactional_id": "tx-6",
        "transaction_timeout_ms": 1000,
        "producer_id": -1,
        "producer_epoch": -1,
        "keep_prepared_txn": False,
    }
    client.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["tx-6"]), 4)
    plain = client.ask(InitProducerIdRequest(enable2_pc=False, **fields), 6)
    assert (plain.error_code, plain.ongoing_txn_producer_id) == (0, -1)
    refused = client.ask(InitProducerIdRequest(enable2_pc=True, **fields), 6)
    assert refused.error_code == KafkaCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_producer_ids_are_never_given_twice(client: RawClient) -> None:
    fields = {
        "transactional_id": None,
        "transaction_timeout_ms": 1,
        "producer_id": -1,
        "producer_epoch": -1,
    }
    given = [client.ask(InitProducerIdRequest(**fields), 4).producer_id for _ in range(1500)]
    assert len(set(given)) == 1500
