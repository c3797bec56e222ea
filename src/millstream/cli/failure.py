"""How a command fails: one line on stderr and an exit code for scripts.

0 success; 1 failure; 2 wrong usage; 3 timeout; 4 no broker reached; 130 Ctrl-C; 141 the
reader closed the output, as `head` does: then nothing is printed. `main` turns exceptions into
these codes; a command raises `CommandFailed` with the code it means.
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


class NotNow(CommandFailed):
    """A node answered that it cannot do it at the moment: worth another try."""
