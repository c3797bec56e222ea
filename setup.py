"""The one part of the build that is not a table: extensions that may be missing.

Without a C compiler the install goes on without them, and `millstream --version` says so.
"""

from pathlib import Path

from setuptools import Extension, setup

# What several extensions share.
SHARED = ["src/millstream/records/_native.h", "src/millstream/records/_record_walk.pxd"]


def extension(package: str, name: str) -> Extension:
    folder = Path("src/millstream", *package.split("."))
    return Extension(
        f"millstream.{package}.{name}",
        [str(folder / f"{name}.pyx")],
        include_dirs=["src/millstream/records"],
        depends=[str(each) for each in sorted(folder.glob("*.pxd"))] + SHARED,
        extra_compile_args=["-O3"],
        optional=True,
    )


setup(
    ext_modules=[
        extension("records", "_columns"),
        extension("records", "_rows"),
        extension("records", "_walk"),
        extension("lines", "_drain"),
        extension("lines", "_scan"),
        extension("broker.network", "_receiving"),
        extension("broker.requests", "_produced"),
    ]
)
