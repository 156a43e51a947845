"""One tool server for a module's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.images.serving import Served, served


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A running server of universe software-team; each test uses assignments of its own."""
    with served(tmp_path_factory.mktemp("data")) as running:
        yield running
