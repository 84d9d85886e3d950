"""Named places where a test may kill the process: `KOORD_FAILPOINT=before_append:3` kills it at the third passage.

A kill is SIGKILL to oneself: nothing is flushed, no handler runs, as when the machine's out-of-memory killer strikes.
Without the variable a failpoint costs one look at a module attribute.

Source:
    event-bus spec, 12 (named failpoints compiled into the steps)
"""

import os
import signal
from typing import Final

VARIABLE: Final = "KOORD_FAILPOINT"


class _Armed:
    """The one failpoint of this process that is armed."""

    def __init__(self, text: str) -> None:
        name, _, count = text.partition(":")
        if count and (not count.isascii() or not count.isdigit() or int(count) == 0):
            raise ValueError(f"{VARIABLE}: must be <name> or <name>:<passage, from 1>, got {text!r}")
        self.name = name
        self.left = int(count or 1)


_armed: Final = _Armed(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None


def failpoint(name: str) -> None:
    """Kill the process if this failpoint is armed and its passage is reached."""
    if _armed is None or _armed.name != name:
        return
    _armed.left -= 1
    if _armed.left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
