"""Fixtures for every test of the workspace: the real servers of `tests/servers.py`; how properties are run."""

from hypothesis import settings

pytest_plugins = ["servers"]

# a shared machine makes single examples slow now and then; the timeout of pytest bounds the whole test instead
settings.register_profile("workspace", deadline=None)
settings.load_profile("workspace")
