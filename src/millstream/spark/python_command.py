"""A command for PYSPARK_PYTHON with which Spark's Python processes start in a third of the time.

Spark puts a zip of PySpark's sources in front of their path. It has no compiled modules, so
every process compiles what it imports, each time, which takes longer than all else that it does to
start. Pip installed the same sources beside the zip, compiled; the command takes the zip off the
path. It removes exactly the zip of this installation: with any other Spark nothing changes.
"""

import os
import shlex
import sys
from pathlib import Path

_SCRIPT = """\
#!/bin/sh
# Starts Python for Spark with the modules that pip installed, not with those in Spark's zip.
{removals}export PYTHONPATH
exec {python} "$@"
"""


def worker_python(folder: str | Path) -> str:
    """The command, written to `folder`; where it would not help, this Python itself."""
    zips = _zips()
    if not zips:
        return sys.executable
    removals = "".join(f"PYTHONPATH=${{PYTHONPATH#{shlex.quote(f'{each}:')}}}\n" for each in zips)
    text = _SCRIPT.format(removals=removals, python=shlex.quote(sys.executable))
    command = Path(folder).absolute() / "spark-python"
    new = command.with_name(f"{command.name}.{os.getpid()}")
    try:
        new.write_text(text)
        new.chmod(0o755)
        # At once: a worker may be about to run the old one.
        new.replace(command)
    except OSError:
        return sys.executable
    # A file system may be mounted such that nothing on it can be run.
    return str(command) if os.access(command, os.X_OK) else sys.executable


def _zips() -> list[Path]:
    """What Spark puts in front of the path, in its order; none if that is not pip's."""
    import pyspark

    installed = Path(pyspark.__file__).parent
    home = os.environ.get("SPARK_HOME")
    if home is not None and Path(home) != installed:
        return []
    folder = installed / "python" / "lib"
    return [*folder.glob("pyspark.zip"), *folder.glob("py4j-*-src.zip")]
