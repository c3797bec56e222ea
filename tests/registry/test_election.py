import json

import pytest

from millstream.registry.election import (
    Election,
    Identity,
    elect,
    identity_of,
    read_election,
    read_identity,
    write_election,
    write_identity,
)

FIRST, SECOND = Identity("a", 8081), Identity("b", 8081)


def test_the_first_address_leads() -> None:
    assert elect({"2": SECOND, "1": FIRST}) == Election("1", FIRST)


def test_who_leads_already_goes_on() -> None:
    leading = Identity("b", 8081, is_leader=True)
    assert elect({"1": FIRST, "2": leading}) == Election("2", leading)


def test_who_may_not_lead_is_not_chosen() -> None:
    resting = Identity("a", 8081, may_lead=False)
    assert elect({"1": resting, "2": SECOND}).leader_member_id == "2"
    assert elect({"1": resting}) == Election(None, None)


def test_identities_have_the_fields_of_other_registries() -> None:
    assert json.loads(write_identity(FIRST)) == {
        "version": 1,
        "host": "a",
        "port": 8081,
        "master_eligibility": True,
        "scheme": "http",
        "leader": False,
    }
    assert read_identity(write_identity(FIRST)) == FIRST
    assert read_identity(b'{"version":1,"host":"a","port":8081,"master_eligibility":true}') == FIRST


@pytest.mark.parametrize("election", [Election("m", FIRST), Election(None, None)])
def test_an_election_is_read_as_it_was_written(election: Election) -> None:
    assert read_election(write_election(election)) == election


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"5", b'{"host":"a"}', b"\xff"])
def test_other_metadata_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        read_identity(data)


@pytest.mark.parametrize("data", [b"", b"[]", b"5", b'{"master_identity":{}}'])
def test_other_assignments_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        read_election(data)


def test_an_identity_from_a_url_and_back() -> None:
    for url in ("http://a:8081", "https://a:443", "http://[::1]:80"):
        assert identity_of(url).url == url
    assert identity_of("https://a/") == Identity("a", 443, "https")
    for url in ("a:8081", "ftp://a", "http://", "http://a/path", "http://a:x"):
        with pytest.raises(ValueError):
            identity_of(url)
