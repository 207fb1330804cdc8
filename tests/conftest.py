"""Options of the whole test suite."""

from __future__ import annotations

import os

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--bless", action="store_true", help="rewrite what golden tests expect; refused where CI=true"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--bless") and os.environ.get("CI", "").lower() in ("1", "true"):
        raise pytest.UsageError("--bless is refused in CI: goldens are accepted by people")


@pytest.fixture(scope="session")
def bless(request: pytest.FixtureRequest) -> bool:
    """Whether golden tests write down what they get."""
    return bool(request.config.getoption("--bless"))
