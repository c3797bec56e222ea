"""The checker itself: a clean history passes, and each mutation of it is caught by its name."""

import random
from collections.abc import Callable

import pytest

from tests.faults.history import NOWHERE, History, Outcome, Poll, Send, anomalies


def clean_history(count: int = 200) -> History:
    chance = random.Random(1)
    history = History(first_offsets={0: 0, 1: 0})
    ends = {0: 0, 1: 0}
    for number in range(count):
        partition = chance.randrange(2)
        value = f"w:{number}"
        outcome = Outcome.FAILED if number % 17 == 0 else Outcome.OK
        send = Send("w", value, partition, number, number + 0.5, outcome)
        if outcome is Outcome.OK:
            send.offset = ends[partition]
            history.final[partition, send.offset] = value
            ends[partition] += 1
        history.sends.append(send)
    # One that nobody can tell about, and that did happen.
    history.sends.append(Send("w", "w:maybe", 0, count, count + 1, Outcome.UNKNOWN))
    history.final[0, ends[0]] = "w:maybe"
    for partition in (0, 1):
        values = sorted((o, v) for (p, o), v in history.final.items() if p == partition)
        for start in range(0, len(values), 7):
            history.polls.append(Poll("c", partition, values[start : start + 7], start == 0))
    return history


def acknowledged(history: History, number: int, partition: int = 0) -> Send:
    sends = [s for s in history.sends if s.outcome is Outcome.OK and s.partition == partition]
    return sends[number]


def lose(history: History) -> None:
    gone = acknowledged(history, 5)
    del history.final[gone.partition, gone.offset]
    for poll in history.polls:
        poll.records = [record for record in poll.records if record[1] != gone.value]


def read_what_is_lost(history: History) -> None:
    history.polls.append(Poll("other", 0, [(10_000, "w:maybe-not")], True))
    history.sends.append(Send("w", "w:maybe-not", 0, 900, 901, Outcome.UNKNOWN))


def replace_at_the_end(history: History) -> None:
    gone = acknowledged(history, 5)
    history.final[gone.partition, gone.offset] = "w:other"
    history.sends.append(Send("v", "w:other", 0, 0, 1, Outcome.UNKNOWN))


def show_before_commit(history: History) -> None:
    place = acknowledged(history, 5)
    history.polls.append(Poll("early", 0, [(place.offset, "w:taken-back")], True))
    history.sends.append(Send("v", "w:taken-back", 0, 0, 1, Outcome.UNKNOWN))


def duplicate(history: History) -> None:
    end = max(offset for partition, offset in history.final if partition == 0) + 1
    history.final[0, end] = acknowledged(history, 5).value


def invent(history: History) -> None:
    end = max(offset for partition, offset in history.final if partition == 0) + 1
    history.final[0, end] = "nobody:1"


def show_a_refused_one(history: History) -> None:
    end = max(offset for partition, offset in history.final if partition == 0) + 1
    refused = next(s for s in history.sends if s.outcome is Outcome.FAILED)
    history.final[0, end] = refused.value


def swap(history: History) -> None:
    one, other = acknowledged(history, 5), acknowledged(history, 6)
    one.offset, other.offset = other.offset, one.offset
    history.final[0, one.offset], history.final[0, other.offset] = one.value, other.value
    history.polls = [poll for poll in history.polls if poll.partition != 0]


def reorder_across_writers(history: History) -> None:
    swap(history)
    acknowledged(history, 6).process = "another"


def skip(history: History) -> None:
    history.polls[1].records = history.polls[1].records[3:]


def go_back(history: History) -> None:
    history.polls.insert(2, history.polls[0])
    history.polls[2].is_first = False
    history.polls[2] = Poll("c", 0, history.polls[0].records)


def test_a_clean_history_is_clean() -> None:
    assert anomalies(clean_history()) == []


@pytest.mark.parametrize(
    ("mutate", "kind"),
    [
        (lose, "lost-write"),
        (read_what_is_lost, "lost-write"),
        (replace_at_the_end, "inconsistent-offset"),
        (show_before_commit, "inconsistent-offset"),
        (duplicate, "duplicate"),
        (invent, "phantom"),
        (show_a_refused_one, "aborted-read"),
        (swap, "nonmonotonic-send"),
        (reorder_across_writers, "realtime-reorder"),
        (skip, "poll-skip"),
        (go_back, "nonmonotonic-poll"),
    ],
)
def test_a_mutated_history_is_caught(mutate: Callable[[History], None], kind: str) -> None:
    history = clean_history()
    mutate(history)
    assert kind in {anomaly.kind for anomaly in anomalies(history)}


def test_a_send_whose_place_nobody_told_is_looked_for_at_the_end():
    history = clean_history()
    known, lost = [send for send in history.sends if send.outcome is Outcome.OK][:2]
    known.offset = NOWHERE
    assert anomalies(history) == []
    lost.offset = NOWHERE
    history.final = {where: value for where, value in history.final.items() if value != lost.value}
    history.polls.clear()
    assert [each.kind for each in anomalies(history)] == ["lost-write"]
