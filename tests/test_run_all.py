"""What `make run` does around the programs it starts, with stand-ins for them."""

import os
import shutil
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parent.parent / "scripts" / "run_all.sh"
MILLSTREAM = """#!/bin/sh
case $1 in
broker)
    echo "listening on 127.0.0.1:7777"
    echo "console on http://127.0.0.1:7778"
    exec sleep 60 ;;
demo) echo "$@" ;;
esac
"""


def write_program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def test_what_an_earlier_node_said_is_not_taken_for_an_answer(tmp_path: Path) -> None:
    shutil.copy(SCRIPT, tmp_path)
    write_program(tmp_path / "prepare_machine.sh", "")
    write_program(tmp_path / "venv" / "bin" / "millstream", MILLSTREAM)
    (tmp_path / "venv" / "installed-pipeline").touch()
    (tmp_path / "pyproject.toml").touch()
    os.utime(tmp_path / "pyproject.toml", (0, 0))
    said = tmp_path / "data-demo" / "node.log.out"
    said.parent.mkdir()
    said.write_text("listening on 127.0.0.1:1111\n")
    # Another name for the old file: it tells whether that one was still there to be read.
    earlier = tmp_path / "earlier"
    os.link(said, earlier)
    done = subprocess.run(
        ["sh", "run_all.sh", "venv/bin", "data", "127.0.0.1:7777", "--for", "20"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "demo -b 127.0.0.1:7777 --home data-demo --for 20"
    assert "http://127.0.0.1:7778/pipeline" in done.stdout
    assert earlier.read_text() == "listening on 127.0.0.1:1111\n"
