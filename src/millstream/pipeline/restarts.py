"""Whether a query that failed is started again from its checkpoint, and after which pause.

Only if a process did not start in time or was killed: nothing is wrong with the lines or the
settings then, and the checkpoint says which batch to repeat. Spark gives the process that plans a
stream ten seconds to connect, and has no setting for that; on a busy machine it takes longer. Any
other failure would come again.

Does not know Spark or the clock: the caller waits.
"""

from dataclasses import dataclass
from typing import Final

# Before the first finished batch, and between two of them.
RESTARTS_MAX: Final = 10
_PAUSE_SECONDS_MAX: Final = 30.0
# Parts of Spark's messages, and what they mean.
_MENDABLE: Final = {
    "Python worker failed to connect back": "a Python process was not ready within the ten seconds "
    "that Spark gives it, because the machine is busy",
    "Python worker exited unexpectedly": "a Python process ended, killed or out of memory",
}


@dataclass(frozen=True, slots=True)
class Restart:
    pause_seconds: float
    # What happened and what follows, for a person.
    text: str


@dataclass(slots=True)
class Restarts:
    """The failures of one query since it last finished a batch."""

    count: int = 0
    last_batch: int = -1

    def after(self, problem: str, *, batch: int) -> Restart | None:
        """`batch`: the last finished one. None if another start would not help."""
        if batch > self.last_batch:
            self.count, self.last_batch = 0, batch
        meaning = next((each for part, each in _MENDABLE.items() if part in problem), None)
        if meaning is None or self.count == RESTARTS_MAX:
            return None
        pause_seconds = min(2.0**self.count, _PAUSE_SECONDS_MAX)
        self.count += 1
        text = (
            f"{meaning}; the query resumes from its checkpoint in {pause_seconds:g} s "
            f"(restart {self.count} of at most {RESTARTS_MAX} without a finished batch)"
        )
        return Restart(pause_seconds, text)
