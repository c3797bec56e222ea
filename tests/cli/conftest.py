"""Commands in tests use no profiles of the developer who runs them."""

import os

import pytest


@pytest.fixture(autouse=True)
def no_profiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_CONFIG", os.devnull)
