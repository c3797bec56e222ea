"""`millstream ship`: sends the lines of files to a topic as they are written.

A state file records the last acknowledged position of each file. It is written after the
acknowledgements: after a kill, the shipper resumes at the last recorded position.
"""

import fcntl
import hashlib
import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import IO, Final

import click

from millstream.cli.bootstrap import bootstrap_option, json_option
from millstream.cli.failure import CommandFailed
from millstream.cli.output import JsonValue, counted, echo, print_json
from millstream.cli.patient_producer import Sender, Stopped
from millstream.cli.progress import Progress
from millstream.cli.topic_view import require_topic
from millstream.ingest.blocks import BlockJoiner
from millstream.ingest.lines import Joiner, Line
from millstream.ingest.shipping_state import (
    Acknowledged,
    StateUnreadable,
    load_state,
    save_state,
)
from millstream.ingest.tail import FileMark, Tail
from millstream.ingest.traces import TraceJoiner

# Below a topic's default limit, with room for the batch around it.
_LINE_BYTES_MAX: Final = 900_000
_SAVE_EVERY_SECONDS: Final = 0.5
# How long to wait before a quiet file is checked again.
_QUIET_SECONDS: Final = 0.25
_FINISH_SECONDS_MAX: Final = 30.0
_DELIVERY_SECONDS_MAX: Final = 120.0


@click.command("ship")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-t", "--topic", required=True)
@click.option("-f", "--follow", is_flag=True, help="Continue as the files grow and are rotated.")
@click.option("--source", help="The key of all records.  [default: HOST/FILE of each file]")
@click.option(
    "--state",
    "state_path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file that records the position.  [default: in ~/.local/state/millstream]",
)
@click.option(
    "--join-traces",
    is_flag=True,
    help="Send a stack trace as one record, together with the line before it.",
)
@click.option(
    "--first-line",
    metavar="TEXT",
    help="Send a block of lines as one record; a line that begins with TEXT starts the next.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print no progress and no counts.")
@json_option
@bootstrap_option
def ship(
    files: tuple[Path, ...],
    topic: str,
    follow: bool,
    source: str | None,
    state_path: Path | None,
    join_traces: bool,
    first_line: str | None,
    quiet: bool,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Send the lines of FILES to a topic, one record per line, and record the position.

    When called again with the same state, it resumes after the last acknowledged line. With
    --follow it keeps running: rotated files are read to their end, truncated ones from their
    start, and it waits for a broker that is down.

    Example: millstream ship /var/log/nginx/access.log --topic logs --follow
    """
    joiners = [make_joiner(join_traces=join_traces, first_line=first_line) for _ in files]
    _check_named_once(files)
    if not follow:
        for path in files:
            if not path.is_file():
                raise CommandFailed(f"{path} is not a file; to wait for it use --follow")
    require_topic(bootstrap, topic)
    state = state_path or _default_state(topic, files)
    sender = Sender(
        bootstrap, topic, delivery_seconds_max=None if follow else _DELIVERY_SECONDS_MAX
    )
    with _State(state) as kept:
        shipper = _Shipper(sender, kept, files, source, Progress(quiet=quiet), joiners)
        was_read_whole = shipper.run(follow=follow)
    if as_json:
        print_json({"topic": topic, **shipper.counts()})
    elif not quiet:
        echo(shipper.summary(topic), err=True)
    if not follow and not was_read_whole:
        raise CommandFailed("stopped before the end of the files; the same call resumes there")


def _check_named_once(files: tuple[Path, ...]) -> None:
    first: dict[Path, Path] = {}
    for path in files:
        other = first.setdefault(path.resolve(), path)
        if other is not path:
            raise click.UsageError(f"{other} and {path} are one file: it would be sent twice")


def source_text(name: str) -> str:
    """A source is text, also if the name of its file is not UTF-8."""
    return os.fsencode(name).decode(errors="replace")


def make_joiner(*, join_traces: bool, first_line: str | None) -> Joiner | None:
    """By the options; None if every line is a record."""
    if join_traces and first_line is not None:
        raise click.UsageError("--join-traces and --first-line exclude each other")
    if first_line == "":
        raise click.UsageError("--first-line is empty: every line begins with that")
    if first_line is not None:
        return BlockJoiner(os.fsencode(first_line))
    return TraceJoiner() if join_traces else None


def _default_state(topic: str, files: tuple[Path, ...]) -> Path:
    """One for each set of files: shippers of different files do not conflict."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    names = "\n".join(sorted(str(path.resolve()) for path in files))
    mark = hashlib.sha256(os.fsencode(names)).hexdigest()[:12]
    return Path(base) / "millstream" / f"ship-{topic}-{mark}.json"


class _State:
    """The state file, locked by one shipper at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock: IO[str] | None = None
        self.marks: dict[str, FileMark] = {}

    def __enter__(self) -> "_State":
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = self._path.with_name(self._path.name + ".lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CommandFailed(
                f"another shipper uses {self._path}; give this one a different --state"
            ) from None
        try:
            self.marks = load_state(self._path)
        except StateUnreadable as wrong:
            raise CommandFailed(
                f"{wrong}. Remove it to start at the beginning of the files"
            ) from None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._lock is not None
        self._lock.close()

    def save(self) -> None:
        save_state(self._path, self.marks)


@dataclass(slots=True)
class _Shipped:
    """A file that is being shipped."""

    name: str
    key: str
    tail: Tail
    acknowledged: Acknowledged
    # Only if lines are joined.
    joiner: Joiner | None
    # When the last line came, by the monotonic clock.
    read_at: float


class _Shipper:
    def __init__(
        self,
        sender: Sender,
        state: _State,
        paths: tuple[Path, ...],
        source: str | None,
        progress: Progress,
        joiners: Sequence[Joiner | None],
    ) -> None:
        self._sender = sender
        self._state = state
        self._progress = progress
        self._bytes_read = 0
        self._long_lines = 0
        self._saved_at = time.monotonic()
        self._is_stopping = False
        host = os.uname().nodename
        self._files = [
            _Shipped(
                name=str(path.resolve()),
                key=source_text(source or f"{host}/{path.name}"),
                tail=Tail(
                    path, state.marks.get(str(path.resolve())), line_bytes_max=_LINE_BYTES_MAX
                ),
                acknowledged=Acknowledged(),
                joiner=joiner,
                read_at=self._saved_at,
            )
            for path, joiner in zip(paths, joiners, strict=True)
        ]

    def run(self, *, follow: bool) -> bool:
        """Until it is stopped, or has read the files to their ends: then True."""
        was_read_whole = False
        before = signal.signal(signal.SIGTERM, self._stop)
        try:
            with suppress(Stopped):
                was_read_whole = self._send_until_stopped(follow=follow)
            self._sender.finish(_FINISH_SECONDS_MAX)
        finally:
            # Also after an interrupt or a refusal: what is acknowledged is recorded.
            self._save()
            for file in self._files:
                file.tail.close()
            self._progress.stop()
            signal.signal(signal.SIGTERM, before)
        return was_read_whole

    def _send_until_stopped(self, *, follow: bool) -> bool:
        while not self._is_stopping:
            for file in self._files:
                self._read(file)
            is_quiet = all(file.tail.is_at_end for file in self._files)
            self._sender.poll(_QUIET_SECONDS if is_quiet and follow else 0)
            self._save_sometimes()
            self._progress.show(self._progress_text)
            if is_quiet and not follow:
                self._send_last_lines()
                return True
        return False

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._is_stopping = True
        self._sender.stop()

    def _read(self, file: _Shipped) -> None:
        lines = file.tail.read()
        for line in lines if file.joiner is None else self._joined(file.joiner, file, lines):
            self._send(file, line.data, line.generation, line.end_position)
            self._long_lines += not line.is_complete

    def _joined(self, joiner: Joiner, file: _Shipped, lines: list[Line]) -> list[Line]:
        """The last record waits for the rest of its lines."""
        if lines:
            file.read_at = time.monotonic()
            return joiner.join(lines)
        quiet_seconds = time.monotonic() - file.read_at
        is_over = file.tail.is_at_end and quiet_seconds >= joiner.quiet_seconds
        return joiner.flush() if is_over else []

    def _send_last_lines(self) -> None:
        for file in self._files:
            lines = file.tail.flush()
            if file.joiner is not None:
                lines = [*file.joiner.join(lines), *file.joiner.flush()]
            for line in lines:
                self._send(file, line.data, line.generation, line.end_position)

    def _send(self, file: _Shipped, data: bytes, generation: int, end_position: int) -> None:
        if not data:
            return
        self._bytes_read += len(data) + 1
        sent = file.acknowledged.sent(generation, end_position)

        def acknowledge() -> None:
            sent.is_acknowledged = True

        self._sender.send(data, key=file.key, acknowledge=acknowledge)

    def _save_sometimes(self) -> None:
        if time.monotonic() - self._saved_at >= _SAVE_EVERY_SECONDS:
            self._save()

    def _save(self) -> None:
        self._saved_at = time.monotonic()
        is_changed = False
        for file in self._files:
            last = file.acknowledged.take_last()
            if last is not None:
                mark = file.tail.mark(last.generation, last.end_position)
                self._state.marks[file.name] = mark
                is_changed = True
        if is_changed:
            self._state.save()

    def _progress_text(self) -> str:
        seconds = max(self._progress.elapsed_seconds, 0.001)
        count = self._sender.acknowledged_count
        return (
            f"{count:,} lines acknowledged, {self._bytes_read / 1e6:,.1f} MB read, "
            f"{count / seconds:,.0f} lines/s, {self._sender.waiting_count:,} waiting"
        )

    def counts(self) -> dict[str, JsonValue]:
        tails = [file.tail.counts for file in self._files]
        return {
            "records": self._sender.acknowledged_count,
            "rotations": sum(each.rotations for each in tails),
            "truncations": sum(each.truncations for each in tails),
            "cut_lines": self._long_lines,
            "files_not_found_again": sum(each.gaps for each in tails),
        }

    def summary(self, topic: str) -> str:
        counts = self.counts()
        text = f"shipped {counted(self._sender.acknowledged_count, 'record')} to {topic}"
        for name, noun in (
            ("rotations", "rotation"),
            ("truncations", "truncation"),
            ("cut_lines", "cut in a long line"),
            ("files_not_found_again", "file not found again; lines may be missing"),
        ):
            if counts[name]:
                text += f"; {counts[name]} {noun}"
        return text
