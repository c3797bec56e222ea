from millstream.broker.requests.routes import served
from millstream.wire.apis.api_versions import ApiVersionsRequest
from millstream.wire.apis.produce import ProduceRequest
from millstream.wire.vendor import KEYS_FROM
from tests.support.raw_client import RawClient


def is_listed(key: int) -> bool:
    """Ours never are, those of telemetry only while there is a subscription."""
    return key < KEYS_FROM and key not in (71, 72)


def test_every_listed_api_is_loadable_and_listed_once(client: RawClient) -> None:
    response = client.ask(
        ApiVersionsRequest(client_software_name="raw", client_software_version="1"), 4
    )
    listed = {key.api_key: (key.min_version, key.max_version) for key in response.api_keys}
    assert len(listed) == len(response.api_keys)
    assert listed == {
        k: (api.min_listed, api.max_listed) for k, api in served().items() if is_listed(k)
    }
    assert listed[ProduceRequest.api.key][0] == 0


def test_a_version_of_api_versions_from_the_future_is_answered_in_version_0(
    client: RawClient,
) -> None:
    client.send_frame(b"\x00\x12\x00\x63" + b"\x00\x00\x00\x07" + b"\xff\xff")
    answer = client.receive_frame()
    assert answer[:6] == b"\x00\x00\x00\x07\x00\x23"
    count = int.from_bytes(answer[6:10], "big")
    assert count == len([k for k in served() if is_listed(k)])


def test_features_of_level_zero_are_for_clients_that_know_them(client: RawClient) -> None:
    request = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
    older, newer = client.ask(request, 3), client.ask(request, 4)
    assert {feature.name for feature in older.supported_features} == {"group.version"}
    assert {feature.name for feature in newer.supported_features} == {
        "group.version",
        "share.version",
        "streams.version",
        "transaction.version",
    }
    assert older.finalized_features == newer.finalized_features
    assert ("streams.version", 1) in [
        (feature.name, feature.max_version_level) for feature in newer.finalized_features
    ]
