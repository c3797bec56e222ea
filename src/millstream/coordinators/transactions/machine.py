"""Transactions as a machine for the journal, and their options."""

from typing import Final

from millstream.config import BrokerConfig
from millstream.coordinators.codecs.transactions import Change, decode, encode
from millstream.coordinators.journal import Machine, Shard
from millstream.coordinators.transactions.decisions import after_replay, deadline_is_over
from millstream.coordinators.transactions.state import (
    TransactionEnv,
    TransactionSettings,
    TransactionsState,
)

TransactionShard = Shard[TransactionsState, Change, TransactionEnv]

TRANSACTIONS: Final[Machine[TransactionsState, Change, TransactionEnv]] = Machine(
    new_state=TransactionsState,
    encode=encode,
    decode=decode,
    apply=TransactionsState.apply,
    apply_pending=TransactionsState.apply_pending,
    end_transaction=TransactionsState.end_transaction,
    names=TransactionsState.names,
    deadline_is_over=deadline_is_over,
    after_replay=after_replay,
)


def transaction_settings(config: BrokerConfig) -> TransactionSettings:
    return TransactionSettings(
        timeout_max_ms=config.int("transaction.max.timeout.ms"),
        expiration_ms=config.int("transactional.id.expiration.ms"),
    )
