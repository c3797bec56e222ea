"""How a page shows keys and values: as what they are, as was asked, or through a registry."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from millstream.console.text import SHORT_CHARACTERS_MAX, Shown, show

if TYPE_CHECKING:
    from millstream.console.schemas import Schemas


@dataclass(frozen=True, slots=True)
class Display:
    """`as_` is auto, text, json or hex. Asks the registry: to be used in a thread."""

    as_: str = "auto"
    # None without a registry.
    schemas: "Schemas | None" = None

    def show(self, data: bytes | None, *, characters_max: int = SHORT_CHARACTERS_MAX) -> Shown:
        if data is not None and self.schemas is not None and self.as_ in ("auto", "json"):
            decoded = self.schemas.decode(data)
            if decoded is not None:
                shown = show(decoded.json, as_="json", characters_max=characters_max)
                return replace(
                    shown,
                    kind=decoded.kind,
                    size_bytes=len(data),
                    schema_id=decoded.schema_id,
                )
        return show(data, as_=self.as_, characters_max=characters_max)
