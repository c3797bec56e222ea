"""A delegation token from its creation to its end, over the protocol."""

import base64
import logging
from collections.abc import Iterator

import pytest

from millstream.broker.security import tokens
from millstream.errors import KafkaCode
from millstream.security.acl import Operation, PatternType, Permission, ResourceType
from millstream.wire.apis.create_acls import AclCreation, CreateAclsRequest
from millstream.wire.apis.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from millstream.wire.apis.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from millstream.wire.apis.expire_delegation_token import ExpireDelegationTokenRequest
from millstream.wire.apis.renew_delegation_token import RenewDelegationTokenRequest
from tests.support.broker import Broker
from tests.support.raw_client import RawClient
from tests.support.sasl_node import (
    PASSWORD,
    PLAIN_USER,
    SCRAM_USER,
    choose,
    log_in_plain,
    log_in_scram,
    sasl_node,
    scram_final,
    step,
)

MECHANISM = "SCRAM-SHA-256"


@pytest.fixture(scope="module")
def node() -> Iterator[Broker]:
    with sasl_node(delegation__token__secret__key="of this run") as running:
        yield running


@pytest.fixture
def owner(node: Broker) -> Iterator[RawClient]:
    with RawClient(node.bootstrap) as client:
        assert log_in_scram(client, SCRAM_USER, PASSWORD).error_code == 0
        yield client


def create(client: RawClient, **more: object) -> CreateDelegationTokenResponse:
    request = CreateDelegationTokenRequest(
        **{"renewers": [], "max_lifetime_ms": -1, **more}  # type: ignore[arg-type]
    )
    return client.ask(request, 3)


def log_in_by_token(client: RawClient, token_id: str, hmac: bytes) -> int:
    assert choose(client, MECHANISM) == 0
    bare = f"n={token_id},r=fyko,tokenauth=true".encode()
    first = bytes(step(client, b"n,," + bare).auth_bytes)
    password = base64.b64encode(hmac).decode()
    return step(client, scram_final(bare, first, password, MECHANISM)).error_code


def test_what_becomes_of_a_token_is_in_the_audit_log(
    owner: RawClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "millstream.audit"):
        made = create(owner)
        renew = RenewDelegationTokenRequest(hmac=bytes(made.hmac), renew_period_ms=1000)
        assert owner.ask(renew, 2).error_code == KafkaCode.NONE
        expire = ExpireDelegationTokenRequest(hmac=bytes(made.hmac), expiry_time_period_ms=-1)
        assert owner.ask(expire, 2).error_code == KafkaCode.NONE
        # What fails changes nothing.
        assert owner.ask(expire, 2).error_code == KafkaCode.DELEGATION_TOKEN_NOT_FOUND
    audited = [each.getMessage() for each in caplog.records if each.name == "millstream.audit"]
    who = f"User:{SCRAM_USER} from 127.0.0.1: delegation token {made.token_id}"
    assert audited == [f"{who}: created", f"{who}: renewed", f"{who}: expired"]


def test_a_token_logs_in_as_its_owner_until_it_is_ended(node: Broker, owner: RawClient) -> None:
    made = create(owner)
    assert made.error_code == KafkaCode.NONE
    assert made.principal_name == SCRAM_USER
    hmac = bytes(made.hmac)
    with RawClient(node.bootstrap) as program, RawClient(node.bootstrap) as wrong:
        assert log_in_by_token(program, made.token_id, hmac) == KafkaCode.NONE
        other = hmac[:-1] + bytes([hmac[-1] ^ 1])
        failed = KafkaCode.SASL_AUTHENTICATION_FAILED
        assert log_in_by_token(wrong, made.token_id, other) == failed
        # A token begets no other.
        refused = KafkaCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert create(program).error_code == refused
        listed = owner.ask(DescribeDelegationTokenRequest(owners=None), 3)
        assert [token.token_id for token in listed.tokens] == [made.token_id]
        assert bytes(listed.tokens[0].hmac) == hmac
        renew = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=1000)
        assert owner.ask(renew, 2).expiry_timestamp_ms < made.expiry_timestamp_ms
        expire = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=-1)
        assert owner.ask(expire, 2).error_code == KafkaCode.NONE
        assert program.is_closed_by_peer()
        assert owner.ask(expire, 2).error_code == KafkaCode.DELEGATION_TOKEN_NOT_FOUND
    with RawClient(node.bootstrap) as program:
        assert log_in_by_token(program, made.token_id, hmac) == failed


def test_others_do_not_see_a_token_unless_they_may_renew_it(node: Broker, owner: RawClient) -> None:
    renewer = CreatableRenewers(principal_type="User", principal_name=PLAIN_USER)
    shown = create(owner, renewers=[renewer])
    hidden = create(owner)
    with RawClient(node.bootstrap) as other:
        assert log_in_plain(other, PLAIN_USER, PASSWORD).error_code == 0
        listed = other.ask(DescribeDelegationTokenRequest(owners=None), 3)
        assert [token.token_id for token in listed.tokens] == [shown.token_id]
        # Kafka's filter: those that one of these may renew.
        for name, count in ((PLAIN_USER, 1), ("nobody", 0)):
            named = DescribeDelegationTokenOwner(principal_type="User", principal_name=name)
            found = other.ask(DescribeDelegationTokenRequest(owners=[named]), 3).tokens
            assert len(found) == count
        mismatch = KafkaCode.DELEGATION_TOKEN_OWNER_MISMATCH
        for made, code in ((shown, KafkaCode.NONE), (hidden, mismatch)):
            request = RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=-1)
            assert other.ask(request, 2).error_code == code


def test_what_is_not_allowed_has_kafkas_errors(owner: RawClient) -> None:
    group = CreatableRenewers(principal_type="Group", principal_name="g")
    assert create(owner, renewers=[group]).error_code == KafkaCode.INVALID_PRINCIPAL_TYPE
    other = {"owner_principal_type": "User", "owner_principal_name": "other"}
    refused = KafkaCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert create(owner, **other).error_code == refused


def test_a_user_has_a_limited_number_of_tokens_and_renewers(
    owner: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = [CreatableRenewers(principal_type="User", principal_name=f"u{n}") for n in range(101)]
    assert create(owner, renewers=many).error_code == KafkaCode.INVALID_REQUEST
    present = len(owner.ask(DescribeDelegationTokenRequest(owners=None), 3).tokens)
    monkeypatch.setattr(tokens, "_TOKENS_MAX", present + 1)
    made = create(owner, renewers=many[:100])
    assert made.error_code == KafkaCode.NONE
    assert create(owner).error_code == KafkaCode.THROTTLING_QUOTA_EXCEEDED
    expire = ExpireDelegationTokenRequest(hmac=bytes(made.hmac), expiry_time_period_ms=-1)
    assert owner.ask(expire, 2).error_code == KafkaCode.NONE
    assert create(owner).error_code == KafkaCode.NONE


def test_wrong_hmacs_do_not_cost_one_of_each_token(
    owner: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        assert create(owner).error_code == KafkaCode.NONE
    wrong = RenewDelegationTokenRequest(hmac=b"wrong", renew_period_ms=1000)
    assert owner.ask(wrong, 2).error_code == KafkaCode.DELEGATION_TOKEN_NOT_FOUND
    computed: list[str] = []
    monkeypatch.setattr(tokens, "token_hmac", lambda _, token_id: computed.append(token_id))
    assert owner.ask(wrong, 2).error_code == KafkaCode.DELEGATION_TOKEN_NOT_FOUND
    assert computed == []


def grant(boss: RawClient, user: str, operation: Operation) -> None:
    creation = AclCreation(
        resource_type=ResourceType.USER,
        resource_name=user,
        resource_pattern_type=PatternType.LITERAL,
        principal=f"User:{PLAIN_USER}",
        host="*",
        operation=operation,
        permission_type=Permission.ALLOW,
    )
    [result] = boss.ask(CreateAclsRequest(creations=[creation]), 3).results
    assert result.error_code == KafkaCode.NONE


def test_acls_allow_tokens_of_other_users() -> None:
    settings = {
        "authorizer__class__name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super__users": f"User:{SCRAM_USER}",
        "delegation__token__secret__key": "of this run",
    }
    for_other = {"owner_principal_type": "User", "owner_principal_name": "erin"}
    everybody = DescribeDelegationTokenRequest(owners=None)
    with sasl_node(**settings) as node:
        with RawClient(node.bootstrap) as boss, RawClient(node.bootstrap) as service:
            assert log_in_scram(boss, SCRAM_USER, PASSWORD).error_code == 0
            assert log_in_plain(service, PLAIN_USER, PASSWORD).error_code == 0
            refused = KafkaCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
            assert create(service, **for_other).error_code == refused
            by_boss = create(boss, **for_other)
            assert by_boss.principal_name == "erin"
            assert by_boss.token_requester_principal_name == SCRAM_USER
            assert service.ask(everybody, 3).tokens == []

            grant(boss, "User:erin", Operation.CREATE_TOKENS)
            own = create(service, **for_other)
            assert own.error_code == KafkaCode.NONE
            # Its requester sees it and may renew it.
            assert [each.token_id for each in service.ask(everybody, 3).tokens] == [own.token_id]
            renew = RenewDelegationTokenRequest(hmac=own.hmac, renew_period_ms=-1)
            assert service.ask(renew, 2).error_code == KafkaCode.NONE

            grant(boss, "User:erin", Operation.DESCRIBE_TOKENS)
            seen = {each.token_id for each in service.ask(everybody, 3).tokens}
            assert seen == {own.token_id, by_boss.token_id}
        with RawClient(node.bootstrap) as program:
            assert log_in_by_token(program, own.token_id, bytes(own.hmac)) == KafkaCode.NONE


def test_without_a_secret_there_are_no_tokens() -> None:
    with sasl_node(MECHANISM) as node, RawClient(node.bootstrap) as client:
        assert log_in_scram(client, SCRAM_USER, PASSWORD).error_code == 0
        assert create(client).error_code == KafkaCode.DELEGATION_TOKEN_AUTH_DISABLED
    with Broker() as node, RawClient(node.bootstrap) as client:
        not_allowed = KafkaCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert create(client).error_code == not_allowed


def test_expired_tokens_are_removed() -> None:
    with (
        sasl_node(
            MECHANISM,
            delegation__token__secret__key="s",
            delegation__token__expiry__check__interval__ms="50",
        ) as node,
        RawClient(node.bootstrap) as client,
    ):
        assert log_in_scram(client, SCRAM_USER, PASSWORD).error_code == 0
        made = create(client, max_lifetime_ms=1)
        while True:
            request = RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=1)
            code = client.ask(request, 2).error_code
            if code == KafkaCode.DELEGATION_TOKEN_NOT_FOUND:
                break
            # It lives for a millisecond, and the first request may be quicker.
            assert code in (KafkaCode.NONE, KafkaCode.DELEGATION_TOKEN_EXPIRED)
