"""The lag of groups by topic, as `group lag` and `share lag` print it."""

from collections.abc import Mapping

from millstream.cli.failure import CommandFailed, ExitCode
from millstream.cli.output import print_json, print_table

_COLUMNS = ("group", "topic", "lag")


def print_lag(
    totals: Mapping[tuple[str, str], int], lag_max: int | None, word: str, *, as_json: bool
) -> None:
    """`totals` are by group and topic. Raises CommandFailed if one is above `lag_max`; `word` says
    what its records are: behind, or left."""
    rows = [(name, topic, count) for (name, topic), count in totals.items()]
    if as_json:
        print_json([dict(zip(_COLUMNS, row, strict=True)) for row in rows])
    else:
        print_table([name.upper() for name in _COLUMNS], rows)
    late = [name for name, _, count in rows if lag_max is not None and count > lag_max]
    if late:
        raise CommandFailed(
            f"more than {lag_max} {word}: {', '.join(dict.fromkeys(late))}",
            exit_code=ExitCode.FAILED,
        )
