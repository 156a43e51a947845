"""One site for a module's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.images.web.website import Website, website


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Website]:
    """A running Calendr with the test's pack; each test uses sessions of its own."""
    with website(tmp_path_factory.mktemp("data")) as running:
        yield running
