"""A micro-batch on the driver: merges what tasks report, and writes what follows from it.

All topics are written in one transaction, with the dead letters of the tasks; each table has a
commit. Everything carries the number of the batch, so what a crash left undone is done when
Spark repeats the batch, and what was done is not done again.
"""

import json
import logging
import pickle
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from threading import Thread
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from millstream.pipeline.kept_state import BatchParts, KeptState
from millstream.pipeline.line_pass import LETTERS, PARTIAL, TASK, sink_options
from millstream.pipeline.progress import Progress, Watched
from millstream.pipeline.results import Record, records_of, to_batch
from millstream.pipeline.spec import Spec
from millstream.spark.exactly_once import (
    BatchContext,
    CarriedRows,
    OpenTransaction,
    carry,
    commit_exactly_once,
)
from millstream.warehouse.files import Batch, TableChanged, WrittenFile
from millstream.warehouse.locations import Location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reported:
    """What all tasks of a batch say."""

    context: BatchContext | None
    letters: list[CarriedRows | OpenTransaction]
    parts: BatchParts
    counts: Counter[str]
    files: dict[str, list[WrittenFile]]


def read_reports(rows: pa.Table, number: int) -> Reported:
    letters: list[CarriedRows | OpenTransaction] = []
    tables: list[tuple[str, bytes]] = []
    told: list[dict[str, Any]] = []
    for row in rows.to_pylist():
        if row["kind"] == LETTERS:
            letters.append(pickle.loads(row["value"]))
        elif row["kind"] == PARTIAL:
            tables.append((row["name"], row["value"]))
        elif row["kind"] == TASK:
            told.append(json.loads(row["value"]))
    counts: Counter[str] = Counter()
    files: dict[str, list[WrittenFile]] = {}
    for each in told:
        counts.update(each["counts"])
        for table, written in each["files"].items():
            files.setdefault(table, []).extend(WrittenFile(**file) for file in written)
    newest = [each["newest_us"] for each in told if each["newest_us"] is not None]
    parts = BatchParts(
        # Tasks end in any order; their numbers do not depend on it.
        sorted(tables),
        max(newest, default=None),
        next((each["now_ms"] for each in told), None),
    )
    context = None
    if told:
        context = BatchContext(told[0]["query_id"], told[0]["run_id"], number)
    return Reported(context, letters, parts, counts, files)


class BatchResults:
    """Writes the batches of one run of a query, one after the other."""

    def __init__(
        self,
        spec: Spec,
        watched: Watched,
        *,
        state: KeptState | None,
        folders: Mapping[str, Location],
    ) -> None:
        """`state`: None if no results are wanted, only tables and dead letters."""
        self._spec = spec
        self._watched = watched
        self._state = state
        self._folders = folders
        self._sink = sink_options(spec.bootstrap)
        # Commits since small files were merged.
        self._commits = 0
        self._tidying: Thread | None = None

    def write(self, batch: "DataFrame", number: int) -> None:
        """For `foreachBatch`."""
        reported = read_reports(batch.toArrow(), number)
        # The state counts every batch, also one without tasks.
        records: list[Record] = []
        if self._state is not None:
            records = records_of(self._state.add(number, reported.parts), self._spec)
        if reported.context is not None:
            self._write(reported, reported.context, records)
        if self._state is not None:
            self._state.tidy()
        self._note(number, reported.counts)

    def _write(self, reported: Reported, context: BatchContext, records: list[Record]) -> None:
        messages: list[CarriedRows | OpenTransaction] = list(reported.letters)
        if records:
            messages.append(carry(context, [to_batch(records)]))
        if any(not isinstance(each, CarriedRows) or each.rows for each in messages):
            commit_exactly_once(self._sink, messages)
        if any(reported.files.values()):
            self._store(Batch(context.query_id, context.batch_id), reported.files)

    def _store(self, batch: Batch, files: Mapping[str, list[WrittenFile]]) -> None:
        from millstream.warehouse import tables as warehouse

        spec = self._spec
        for table, folder in self._folders.items():
            schema = warehouse.TABLE_SCHEMAS[table]
            warehouse.commit_batch(folder, schema, spec.warehouse, batch, files.get(table, []))
        self._commits += 1
        if self._commits < spec.compact_every:
            return
        self._commits = 0
        if spec.warehouse != warehouse.DELTA:
            # Its commit would be refused if a batch came meanwhile.
            self._tidy()
        elif self._tidying is None or not self._tidying.is_alive():
            # Batches go on; what a driver that ends leaves undone is done the next time.
            self._tidying = Thread(target=self._tidy, name="tidy", daemon=True)
            self._tidying.start()

    def _tidy(self) -> None:
        from deltalake.exceptions import DeltaError

        from millstream.warehouse import tables as warehouse

        spec = self._spec
        today = datetime.now(ZoneInfo(spec.timezone)).date()
        for folder in self._folders.values():
            try:
                warehouse.tidy(folder, keep_days=spec.keep_days, today=today)
            except (DeltaError, TableChanged, OSError) as failed:
                # The rows are stored; files that stay small for a while are no reason to stop.
                log.warning("could not tidy %s: %s", folder, failed)

    def _note(self, number: int, counts: Counter[str]) -> None:
        results = None if self._state is None else self._state.results
        self._watched.set(
            Progress(
                lines=self._watched.get().lines + counts,
                batch=number,
                batch_lines=counts.total(),
                state_rows=0 if results is None else len(results),
                dropped=0 if results is None else results.dropped,
                watermark_us=None if results is None else results.watermark_us,
            )
        )
