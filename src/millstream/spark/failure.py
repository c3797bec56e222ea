"""How the data source fails: a class in brackets as Spark writes it, then what to do."""


class SourceError(Exception):
    """Wrong options, missing topics, lost data: a retry will not help."""

    def __init__(self, error_class: str, text: str) -> None:
        super().__init__(f"[MILLSTREAM_{error_class}] {text}")
        self.error_class = error_class
        self._text = text

    def __reduce__(self) -> tuple[type["SourceError"], tuple[str, str]]:
        # Spark passes exceptions between processes.
        return type(self), (self.error_class, self._text)


class Unreachable(SourceError):
    """No broker answered within the time in the options."""


def option_error(option: str, text: str) -> SourceError:
    return SourceError("INVALID_OPTION", f"Option '{option}': {text}")


def data_loss(text: str) -> SourceError:
    """The failure that `failOnDataLoss` controls, with both remedies. `stream`, `planning` and
    `fetching` raise it."""
    return SourceError(
        "DATA_LOSS",
        f"{text}. Some data may have been lost because it is no longer in the topic: retention "
        "passed the reader, or the topic was deleted, truncated or recreated. If the query should "
        "continue with the remaining records, set the option 'failOnDataLoss' to 'false'; to start "
        "over, use another checkpoint location",
    )
