"""How a command fails: one line on stderr and an exit code that scripts can tell apart.

0 it worked; 1 it failed; 2 it was called wrongly; 3 it took too long; 4 no broker was
reached; 130 Ctrl-C; 141 the reader of the output left, as `head` does: nothing is said then.
"""

from enum import IntEnum


class ExitCode(IntEnum):
    FAILED = 1
    USAGE = 2
    TIMEOUT = 3
    UNREACHABLE = 4
    INTERRUPTED = 130
    OUTPUT_CLOSED = 141


class CommandFailed(Exception):
    """The text is for a person: what, where, why, and what to do next."""

    def __init__(self, text: str, *, exit_code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(text)
        self.exit_code = exit_code
