"""Everything here starts real brokers and clients."""

from pathlib import Path

import pytest


# Before the tests are sorted, since slow ones begin first.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.slow)
