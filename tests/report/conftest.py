"""Fixtures of the tests that write pages."""

import pytest

from jtransformer.report import page


@pytest.fixture(scope="session", autouse=True)
def bundled_once():
    """Keeps the JavaScript that every page has: it is the same each time, and takes a second."""
    made, make = [], page.bundle

    def bundle():
        if not made:
            made.append(make())
        return made[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "bundle", bundle)
        yield
