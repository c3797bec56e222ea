"""Regular expressions that clients and operators send: RE2's syntax.

RE2 matches in time linear in the text and in bounded memory, whatever the pattern. Python's
own `re` tries alternatives one after the other, and one request could keep the node busy for
hours.
"""

from typing import Final

PATTERN_LENGTH_MAX: Final = 1024
# The memory for one compiled pattern with its tables.
_PATTERN_BYTES_MAX: Final = 1 << 19


class WholePattern:
    """Compiled once; matches whole texts."""

    __slots__ = ("_compiled",)

    def __init__(self, text: str) -> None:
        """Raises ValueError if the pattern is invalid."""
        # Imported here: most nodes never see a pattern.
        import re2

        if len(text) > PATTERN_LENGTH_MAX:
            raise ValueError(f"longer than {PATTERN_LENGTH_MAX} characters")
        options = re2.Options()
        options.max_mem = _PATTERN_BYTES_MAX
        options.never_capture = True
        options.log_errors = False
        try:
            self._compiled = re2.compile(text, options)
        except re2.error as error:
            problem = error.args[0]
            if isinstance(problem, bytes):
                problem = problem.decode("utf-8", "replace")
            raise ValueError(problem) from None

    def matches(self, text: str) -> bool:
        return self._compiled.fullmatch(text) is not None
