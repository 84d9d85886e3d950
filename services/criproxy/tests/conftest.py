"""What holds for every test of the proxy."""

import pytest
from koord_criproxy.hooks import asking
from support.until import DEADLINE_SECONDS


@pytest.fixture(autouse=True)
def patient_with_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the proxy wait for a hook as long as a test waits: on a slow machine, a hook that answers is no failure."""
    monkeypatch.setattr(asking, "HOOK_SECONDS", DEADLINE_SECONDS)
