from millstream.wire.apis import APIS, ApiKey
from millstream.wire.vendor import KEYS_FROM
from tests.support.raw_client import RawClient


def test_every_listed_api_is_loadable_and_listed_once(client: RawClient) -> None:
    response = client.ask(
        ApiKey.API_VERSIONS, 4, client_software_name="raw", client_software_version="1"
    )
    listed = {key.api_key: (key.min_version, key.max_version) for key in response.api_keys}
    assert len(listed) == len(response.api_keys)
    assert listed == {
        k: (api.lowest_listed, api.highest_listed) for k, api in APIS.items() if k < KEYS_FROM
    }
    assert listed[ApiKey.PRODUCE][0] == 0


def test_a_version_of_api_versions_from_the_future_is_answered_in_version_0(
    client: RawClient,
) -> None:
    client.send_frame(b"\x00\x12\x00\x63" + b"\x00\x00\x00\x07" + b"\xff\xff")
    answer = client.receive_frame()
    assert answer[:6] == b"\x00\x00\x00\x07\x00\x23"
    count = int.from_bytes(answer[6:10], "big")
    assert count == len([k for k in APIS if k < KEYS_FROM])
