"""Failpoints: named places in the code where a test can kill the process.

`KOORD_FAILPOINT=before_append:3` kills the process when it reaches the place for the third time. The process sends
SIGKILL to itself, so nothing is flushed and no handler runs. Without the variable, a failpoint costs one attribute
access.

Source: event-bus spec, 12 (named failpoints compiled into the steps).
"""

import os
import signal
from typing import Final

VARIABLE: Final = "KOORD_FAILPOINT"


class _Armed:
    """The failpoint of this process that is armed."""

    def __init__(self, text: str) -> None:
        name, _, count = text.partition(":")
        if count and (not count.isascii() or not count.isdigit() or int(count) == 0):
            raise ValueError(f"{VARIABLE}: must be <name> or <name>:<passage, from 1>, got {text!r}")
        self.name = name
        self.left = int(count or 1)


_armed: Final = _Armed(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None


def failpoint(name: str) -> None:
    """Kill this process with SIGKILL if `KOORD_FAILPOINT` names this place and the place was reached often enough.
    Tests use it. `KOORD_FAILPOINT=before_append:3` means: kill when `failpoint("before_append")` is called the third
    time.
    """
    if _armed is None or _armed.name != name:
        return
    _armed.left -= 1
    if _armed.left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
