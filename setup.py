"""The one part of the build that is not a table: an extension that may be missing.

Without a C compiler the install goes on without it, and `millstream --version` says so.
"""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "millstream.records._columns",
            ["src/millstream/records/_columns.pyx"],
            extra_compile_args=["-O3"],
            optional=True,
        )
    ]
)
