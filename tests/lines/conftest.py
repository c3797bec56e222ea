"""The core is complete without Arrow; these tests need it."""

import importlib.util

if importlib.util.find_spec("pyarrow") is None:
    collect_ignore_glob = ["test_*.py"]
