"""The checker must find each kind of damage, or green runs mean nothing."""

from tests.faults.ledger import Ledger, problems

WRITERS = {"all", "one"}


def ledger_of(**acknowledged: tuple[int, int]) -> Ledger:
    ledger = Ledger()
    for name, (partition, offset) in acknowledged.items():
        writer, _, number = name.partition("_")
        ledger.acknowledge(f"{writer}:{number}", partition, offset)
    return ledger


def kinds(found: list[str]) -> set[str]:
    return {problem.partition(":")[0] for problem in found}


def test_a_sound_log_has_no_problems() -> None:
    ledger = ledger_of(all_1=(0, 0), all_2=(0, 1))
    log = {(0, 0): "all:1", (0, 1): "all:2", (0, 2): "all:3"}
    assert problems(ledger, log, writers=WRITERS) == []


def test_a_missing_acknowledged_record_is_a_loss() -> None:
    assert kinds(problems(ledger_of(all_1=(0, 0)), {}, writers=WRITERS)) == {"lost"}


def test_a_loss_of_a_writer_without_a_promise_is_none() -> None:
    assert problems(ledger_of(one_1=(0, 0)), {}, writers={"all"}) == []


def test_a_value_at_two_offsets_is_a_duplicate() -> None:
    found = problems(ledger_of(), {(0, 0): "all:1", (1, 0): "all:1"}, writers=WRITERS)
    assert kinds(found) == {"duplicate"}


def test_a_record_at_another_offset_has_moved() -> None:
    found = problems(ledger_of(all_1=(0, 0)), {(0, 5): "all:1"}, writers=WRITERS)
    assert kinds(found) == {"moved"}


def test_reading_begins_below_the_start_where_the_log_became_shorter() -> None:
    ledger = ledger_of(all_1=(0, 7), all_2=(0, 8), all_3=(1, 30))
    assert ledger.first_offsets({0: 10, 1: 20}) == {0: 7, 1: 20}


def test_a_record_acknowledged_without_its_place_has_to_be_somewhere() -> None:
    ledger = Ledger()
    ledger.acknowledge("all:1", 0, None)
    ledger.acknowledge("all:2", 1, 25)
    assert ledger.first_offsets({0: 10, 1: 20}) == {0: 0, 1: 20}
    assert problems(ledger, {(0, 7): "all:1", (1, 25): "all:2"}, writers=WRITERS) == []
    assert kinds(problems(ledger, {(1, 25): "all:2"}, writers=WRITERS)) == {"lost"}


def test_acknowledgements_are_counted_by_writer() -> None:
    ledger = ledger_of(all_1=(0, 0), one_1=(0, 1), one_2=(0, 2))
    assert (ledger.counts["all"], ledger.counts["one"]) == (1, 2)


def test_a_later_number_before_an_earlier_one_is_disorder() -> None:
    found = problems(ledger_of(), {(0, 0): "all:2", (0, 1): "all:1"}, writers=WRITERS)
    assert kinds(found) == {"disorder"}
