"""The one part of the build that is not a table: extensions that may be missing.

Without a C compiler the install goes on without them, and `millstream --version` says so.
"""

from setuptools import Extension, setup


def extension(name: str) -> Extension:
    return Extension(
        f"millstream.records.{name}",
        [f"src/millstream/records/{name}.pyx"],
        extra_compile_args=["-O3"],
        optional=True,
    )


setup(ext_modules=[extension("_columns"), extension("_rows")])
