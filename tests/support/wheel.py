"""Millstream as users get it: a wheel, in an environment that does not see the checkout.

Libraries are those of the environment that runs the tests; a path is enough for them, since
the link to the checkout is not followed from there.
"""

import shutil
import sys
import sysconfig
import venv
from pathlib import Path

from tests.support.tools import run_checked

_CHECKOUT = Path(__file__).parent.parent.parent
# Compiling takes a minute of CPU, which a busy machine may give it only in ten.
_SECONDS_MAX = 900
# What the wheel is built from; compiled again, whatever lies about in the checkout.
_SOURCES = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "src")
_BUILT = shutil.ignore_patterns("*.so", "*.c", "*.egg-info", "__pycache__")


def install_wheel(folder: Path) -> Path:
    """Build the wheel, install it into a new environment, and return the Python of that."""
    wheel = _build(folder)
    environment = folder / "environment"
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = environment / "lib" / version / "site-packages"
    (packages / "libraries.pth").write_text(sysconfig.get_path("platlib") + "\n")
    pip = [sys.executable, "-m", "pip", "--quiet", "--python", str(python)]
    # Forced: pip would find what the libraries' environment has installed.
    options = ["--no-deps", "--no-index", "--force-reinstall", "--target", str(packages)]
    run_checked([*pip, "install", *options, str(wheel)], timeout_seconds=_SECONDS_MAX)
    return python


def _build(folder: Path) -> Path:
    sources = folder / "sources"
    sources.mkdir()
    for name in _SOURCES:
        place = _CHECKOUT / name
        if place.is_dir():
            shutil.copytree(place, sources / name, ignore=_BUILT)
        else:
            shutil.copy(place, sources / name)
    pip = [sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps", "--no-build-isolation"]
    wheels = folder / "wheels"
    run_checked(
        [*pip, "--wheel-dir", str(wheels), str(sources)], timeout_seconds=_SECONDS_MAX, cwd=folder
    )
    [wheel] = wheels.glob("*.whl")
    return wheel
