"""The check of transactions finds what it is there for."""

from collections import Counter

from tests.faults.transactions import Transactions, problems

DONE = Transactions(committed={"1.0": 2}, aborted={"1.1": 2}, unknown={"1.2": 2})


def test_committed_records_and_all_or_nothing_of_the_unknown_are_right() -> None:
    assert problems(DONE, Counter(["1.0:0", "1.0:1"])) == []
    assert problems(DONE, Counter(["1.0:0", "1.0:1", "1.2:0", "1.2:1"])) == []


def test_everything_else_is_wrong() -> None:
    assert problems(DONE, Counter(["1.0:0"])) == ["lost: 1 of 2 records of the committed 1.0"]
    assert problems(DONE, Counter(["1.0:0", "1.0:1", "1.1:0"])) == [
        "shown: 1 records of the aborted 1.1"
    ]
    assert problems(DONE, Counter(["1.0:0", "1.0:1", "1.2:0"])) == ["torn: 1 of 2 records of 1.2"]
    assert problems(DONE, Counter(["1.0:0", "1.0:1", "1.0:1"])) == [
        "duplicate: 1.0:1 of a transaction"
    ]
