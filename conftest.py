"""Fixtures for every test of the workspace: the real servers of `tests/servers.py`."""

pytest_plugins = ["servers"]
