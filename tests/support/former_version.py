"""The version before this one, from the repository's history: what an upgrade starts with."""

import subprocess
import sys
from pathlib import Path
from typing import Final

# The last commit that knew no levels (src/millstream/cluster/level.py).
FORMER: Final = "2b51b16027808fc3e112e734efcd20353d322fc1"
_ROOT: Final = Path(__file__).parents[2]


def install_former_version(folder: Path) -> Path:
    """A directory for PYTHONPATH: the former version, compiled, without its dependencies."""
    source, packages = folder / "former-source", folder / "former"
    source.mkdir(parents=True)
    archive = subprocess.run(
        ["git", "-C", str(_ROOT), "archive", FORMER], stdout=subprocess.PIPE, check=True
    )
    subprocess.run(["tar", "-x", "-C", str(source)], input=archive.stdout, check=True)
    install = ["install", "--quiet", "--no-deps", "--target", str(packages), str(source)]
    subprocess.run([sys.executable, "-m", "pip", *install], check=True)
    return packages
