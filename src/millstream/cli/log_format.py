"""How a node writes its log: lines for people, or JSON for programs that collect logs."""

import logging
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, TypeVar

import click

from millstream.cli.output import JsonValue, escaped, json_text

F = TypeVar("F", bound=Callable[..., object])
TEXT: Final = "text"
JSON: Final = "json"


class JsonFormatter(logging.Formatter):
    """One object for each line: `time` in UTC, `level`, `logger`, `message`, and `exception` if
    there is one."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, JsonValue] = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json_text(line)


class LineFormatter(logging.Formatter):
    """A line for each message, whatever the names in it have; only an exception has more."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return escaped(super().formatMessage(record)).replace("\n", "\\n")

    def format(self, record: logging.LogRecord) -> str:
        return escaped(super().format(record))


def log_format_option(command: F) -> F:
    return click.option(
        "--log-format",
        type=click.Choice([TEXT, JSON]),
        default=TEXT,
        show_default=True,
        envvar="MILLSTREAM_LOG_FORMAT",
        help="Log lines for people, or a JSON object in each line.",
    )(command)


def write_log(log_format: str) -> None:
    """To standard error, from now on."""
    handler = logging.StreamHandler(sys.stderr)
    if log_format == JSON:
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(LineFormatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def spell_out_warnings() -> None:
    """In commands without a log of their own, where Python prints warnings as they are."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(LineFormatter("%(message)s"))


def write_warnings(line: str) -> None:
    """The log of a command that people watch: warnings and errors, as `line` says."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(line))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
