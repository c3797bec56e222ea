"""The shapes of `docs/cli_json.md`, and where a value differs from one."""

import json
import re
from pathlib import Path

_PAGE = Path(__file__).parent.parent.parent / "docs" / "cli_json.md"
_KINDS = {"text": str, "number": int | float, "yes/no": bool}


def documented_shapes() -> dict[str, object]:
    """By command, such as `topic list`."""
    blocks = re.findall(
        r"^```json shape=(\S+)\n(.*?)^```$", _PAGE.read_text(), re.DOTALL | re.MULTILINE
    )
    return {name: json.loads(shape) for names, shape in blocks for name in names.split(",")}


def mismatch(value: object, shape: object, where: str) -> str | None:
    """Where a value does not have its shape."""
    match shape:
        case {"NAME": inner}:
            if not isinstance(value, dict):
                return f"{where}: {value!r}"
            parts = [(each, inner, name) for name, each in value.items()]
        case dict():
            if value is None:
                return None
            if not isinstance(value, dict) or set(value) != set(shape):
                return f"{where}: {value!r}"
            parts = [(value[name], shape[name], name) for name in shape]
        case [inner]:
            if not isinstance(value, list):
                return f"{where}: {value!r}"
            parts = [(each, inner, "[]") for each in value]
        case str():
            return None if _has_type(value, shape) else f"{where}: {value!r} is not {shape}"
        case _:
            raise AssertionError(f"{where} has no shape: {shape!r}")
    found = (mismatch(each, inner, f"{where}.{name}") for each, inner, name in parts)
    return next((text for text in found if text), None)


def _has_type(value: object, name: str) -> bool:
    if value is None:
        return name.endswith("?")
    is_bool = isinstance(value, bool)
    return isinstance(value, _KINDS[name.rstrip("?")]) and is_bool == name.startswith("yes")
