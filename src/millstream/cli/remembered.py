"""What commands remember about a cluster between two calls: small files in the user's home."""

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path


def memory_path(what: str, cluster_id: str) -> Path:
    home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    safe = "".join(each if each.isalnum() or each in "-_" else "_" for each in cluster_id)
    return Path(home) / "millstream" / f"{what}-{safe}.json"


def recall_times(path: Path) -> dict[str, float]:
    """When something was, by its name; nothing where the file is missing or damaged."""
    try:
        return {str(key): float(at) for key, at in json.loads(path.read_text()).items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def keep_times(path: Path, times: Mapping[str, float]) -> None:
    """A home that cannot be written is no reason to fail."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(times))
