"""The ledger must find two owners, or green runs mean nothing."""

from tests.interop.groups.crowd import Ledger


def note(ledger: Ledger, member: str, event: str, at_ns: int) -> None:
    ledger.note(member=member, event=event, partitions=["t-0"], at_ns=at_ns)


def test_one_owner_after_the_other_is_fine() -> None:
    ledger = Ledger()
    note(ledger, "a", "assign", 1)
    note(ledger, "b", "assign", 3)
    # Lines of different processes arrive in any order.
    note(ledger, "a", "revoke", 2)
    assert ledger.overlaps() == []
    assert ledger.owners() == {"t-0": ["b"]}


def test_a_new_owner_before_the_old_gave_it_up_is_found() -> None:
    ledger = Ledger()
    note(ledger, "a", "assign", 1)
    note(ledger, "b", "assign", 2)
    note(ledger, "a", "revoke", 3)
    assert len(ledger.overlaps()) == 1


def test_an_owner_that_never_gave_it_up_is_found() -> None:
    ledger = Ledger()
    note(ledger, "a", "assign", 1)
    note(ledger, "b", "assign", 2)
    assert len(ledger.overlaps()) == 1


def test_a_killed_member_owns_nothing() -> None:
    ledger = Ledger()
    note(ledger, "a", "assign", 1)
    ledger.gone("a", 2)
    note(ledger, "b", "assign", 3)
    assert ledger.overlaps() == []
