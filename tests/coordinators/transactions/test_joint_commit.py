"""One commit for many producers: decided whole, once, and in one batch of records."""

from dataclasses import dataclass, field

import pytest

from millstream.coordinators.codecs.transactions import (
    Change,
    CommittedBatch,
    StoredTransaction,
    decode,
    encode,
)
from millstream.coordinators.decision import ProducerEpoch, Ticket
from millstream.coordinators.journal import BATCH_BYTES_MAX
from millstream.coordinators.transactions.decisions import (
    EPOCH_PER_TRANSACTION,
    EndRequest,
    completed,
    end,
)
from millstream.coordinators.transactions.joint_commit import (
    FENCED_RUNS_MAX,
    GroupReply,
    Member,
    commit_group,
    expire_group,
    group_of,
    last_batch,
    shard_name,
)
from millstream.coordinators.transactions.state import (
    Status,
    Transaction,
    TransactionEnv,
    TransactionsState,
)
from millstream.errors import KafkaCode, KafkaError
from tests.coordinators.world import TRANSACTION_SETTINGS

GROUP = "query/sink"


@dataclass
class Group:
    state: TransactionsState = field(default_factory=TransactionsState)
    now_ms: int = 1_000
    records: list[Change] = field(default_factory=list)

    def env(self) -> TransactionEnv:
        return TransactionEnv(
            self.now_ms, self.now_ms, TRANSACTION_SETTINGS, Ticket(), lambda: 1_000
        )

    def member(
        self,
        name: str,
        status: Status = Status.ONGOING,
        *,
        topics: int = 1,
        client_version: int = 0,
    ) -> Member:
        transactional_id = f"millstream:{GROUP}:{name}"
        producer = ProducerEpoch(len(self.state.transactions), 0)
        self.state.transactions[transactional_id] = Transaction(
            transactional_id,
            StoredTransaction(
                producer.producer_id,
                producer.epoch,
                60_000,
                status,
                {f"{'t' * 200}{n}": frozenset({0}) for n in range(topics)},
                client_version=client_version,
            ),
        )
        return Member(transactional_id, producer)

    def commit(self, batch: int, *members: Member, run: str = "") -> GroupReply | None:
        decision = commit_group(self.state, GROUP, run, batch, members, self.env())
        self.records = decision.records
        for change in decision.records:
            again = decode(*encode(change))
            assert again == change
            self.state.apply(change)
        return decision.reply

    def last_batch(self, run: str = "") -> int | None:
        decision = last_batch(self.state, GROUP, run, self.env())
        for change in decision.records:
            self.state.apply(change)
        return decision.reply

    def statuses(self) -> list[Status]:
        return [one.status for one in self.state.transactions.values()]


def refused(group: Group, batch: int, *members: Member) -> KafkaCode:
    before = group.statuses()
    with pytest.raises(KafkaError) as error:
        group.commit(batch, *members)
    assert group.statuses() == before
    assert group.state.batches == {}
    return error.value.code


def test_members_of_a_group_share_a_shard_and_others_have_their_own() -> None:
    assert group_of("millstream:query/sink:3") == "query/sink"
    assert group_of("millstream:a:b:3") == "a:b"
    assert shard_name("millstream:query/sink:3") == shard_name("millstream:query/sink:4")
    for other in ("mill", "millstream", "millstream:", "millstream:x", "millstream::x"):
        assert group_of(other) is None
        assert shard_name(other) == other


def test_named_members_are_committed_and_all_others_of_the_group_aborted() -> None:
    group = Group()
    first, second = group.member("a"), group.member("b")
    group.member("c")
    group.member("idle", Status.COMPLETE_COMMIT)
    group.state.transactions["other"] = Transaction(
        "other", StoredTransaction(9, 0, 60_000, Status.ONGOING)
    )
    assert group.commit(5, first, second) == GroupReply(5, is_repeated=False)
    assert group.statuses() == [
        Status.PREPARE_COMMIT,
        Status.PREPARE_COMMIT,
        Status.PREPARE_ABORT,
        Status.COMPLETE_COMMIT,
        Status.ONGOING,
    ]
    epochs = [one.stored.producer_epoch for one in group.state.transactions.values()]
    assert epochs == [1, 1, 1, 0, 0], "whatever is late from a member is fenced"
    assert group.state.batches == {GROUP: CommittedBatch(5, 1_000)}


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("is_named", [True, False])
def test_a_member_that_ends_its_transaction_late_is_fenced(is_named: bool, is_commit: bool) -> None:
    group = Group()
    member = group.member("a", client_version=EPOCH_PER_TRANSACTION)
    group.commit(5, *[member] * is_named)
    late = EndRequest(
        member.transactional_id, member.producer, is_commit, client_version=EPOCH_PER_TRANSACTION
    )
    transaction = group.state.transactions[member.transactional_id]
    for after in (transaction.stored, completed(transaction, group.env())):
        transaction.stored = after
        with pytest.raises(KafkaError) as error:
            end(group.state, late, group.env())
        assert error.value.code is KafkaCode.PRODUCER_FENCED


@pytest.mark.parametrize("batch", [5, 4, 0])
def test_a_batch_that_was_committed_is_not_committed_again(batch: int) -> None:
    group = Group()
    group.commit(5, group.member("a"))
    late = group.member("b")
    assert group.commit(batch, late) == GroupReply(5, is_repeated=True)
    assert group.records == []
    assert group.last_batch() == 5


def test_an_empty_batch_is_a_batch() -> None:
    group = Group()
    assert group.last_batch() == -1
    assert group.commit(0) == GroupReply(0, is_repeated=False)
    assert group.last_batch() == 0


def test_one_member_that_cannot_be_committed_refuses_all() -> None:
    group = Group()
    good = group.member("a")
    idle = group.member("b", Status.EMPTY)
    ending = group.member("c", Status.PREPARE_ABORT)
    fenced = Member(good.transactional_id, ProducerEpoch(good.producer.producer_id, 7))
    unknown = Member(f"millstream:{GROUP}:nobody", good.producer)
    stranger = Member("millstream:other:a", good.producer)
    assert refused(group, 1, good, idle) is KafkaCode.INVALID_TXN_STATE
    assert refused(group, 1, good, ending) is KafkaCode.CONCURRENT_TRANSACTIONS
    assert refused(group, 1, fenced) is KafkaCode.PRODUCER_FENCED
    assert refused(group, 1, good, unknown) is KafkaCode.INVALID_PRODUCER_ID_MAPPING
    assert refused(group, 1, good, stranger) is KafkaCode.INVALID_REQUEST
    assert refused(group, 1, good, good) is KafkaCode.INVALID_REQUEST
    assert refused(group, -1, good) is KafkaCode.INVALID_REQUEST


def test_what_does_not_fit_into_one_batch_of_records_is_refused() -> None:
    group = Group()
    members = [group.member(str(n), topics=100) for n in range(BATCH_BYTES_MAX // 20_000)]
    assert refused(group, 1, *members) is KafkaCode.MESSAGE_TOO_LARGE
    fits = group.state.transactions
    for name in list(fits)[20:]:
        del fits[name]
    assert group.commit(1, *members[:20]) == GroupReply(1, is_repeated=False)


def test_a_group_that_nobody_uses_is_forgotten() -> None:
    group = Group()
    group.commit(5)
    group.now_ms += TRANSACTION_SETTINGS.expiration_ms - 1
    assert expire_group(group.state, GROUP, group.env()).records == []
    group.now_ms += 1
    for change in expire_group(group.state, GROUP, group.env()).records:
        group.state.apply(change)
    assert group.state.batches == {}


def test_a_new_run_takes_the_group_over_and_older_ones_are_refused() -> None:
    group = Group()
    assert group.commit(0, run="first") == GroupReply(0, is_repeated=False)
    assert group.last_batch("second") == 0
    for batch in (0, 1):
        with pytest.raises(KafkaError) as error:
            group.commit(batch, run="first")
        assert error.value.code is KafkaCode.FENCED_INSTANCE_ID
    with pytest.raises(KafkaError, match="followed by run second"):
        group.last_batch("first")
    assert group.commit(1, run="second") == GroupReply(1, is_repeated=False)
    assert group.commit(2, run="third") == GroupReply(2, is_repeated=False)
    with pytest.raises(KafkaError, match="followed by run third"):
        group.commit(3, run="second")
    assert group.commit(3) == GroupReply(3, is_repeated=False), "who names no run is not asked"


def test_asking_again_in_the_same_run_writes_nothing() -> None:
    group = Group()
    assert group.last_batch("first") == -1
    assert group.state.batches == {GROUP: CommittedBatch(-1, 1_000, "first")}
    assert last_batch(group.state, GROUP, "first", group.env()).records == []
    assert last_batch(group.state, "other", "", group.env()).records == []


def test_only_the_newest_of_the_fenced_runs_are_remembered() -> None:
    group = Group()
    for number in range(FENCED_RUNS_MAX + 3):
        group.last_batch(f"run-{number}")
    fenced = group.state.batches[GROUP].fenced_runs
    assert fenced == tuple(f"run-{number}" for number in range(2, FENCED_RUNS_MAX + 2))
    with pytest.raises(KafkaError) as error:
        group.last_batch("x" * 1_001)
    assert error.value.code is KafkaCode.INVALID_REQUEST
