"""`pytest tests/conformance --vectors DIR` runs another folder of vectors instead of the copies beside this file."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """DIR holds `<area>/<kind>.json`, or is one area's folder."""
    parser.addoption("--vectors", metavar="DIR", default=None, help="conformance vectors: DIR/<area>/<kind>.json")
