"""A Kafka that a test starts, and ends when its block does."""

import shutil
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from millstream.testing.data_folder import new_folder
from millstream.testing.kafka import Kafka


class StartedKafka(Kafka, ABC):
    def __init__(self) -> None:
        super().__init__()
        # Of data that is not kept; removed at last, however the test ends.
        self._temporary: Path | None = None
        self._remove: Callable[[], object] = lambda: None

    @abstractmethod
    def start(self) -> None:
        """It answers when this returns."""

    @abstractmethod
    def close(self) -> None:
        """Stop for good: data that is not kept is removed."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _temporary_folder(self, storage: str) -> Path:
        """The same until `_remove_temporary`."""
        if self._temporary is None:
            self._temporary = new_folder(storage)
            self._remove = weakref.finalize(
                self, shutil.rmtree, self._temporary, ignore_errors=True
            )
        return self._temporary

    def _remove_temporary(self) -> None:
        self._remove()
        self._temporary = None
