"""Failpoints: named places in the code where a test can kill the process, or block its event loop.

`KOORD_FAILPOINT=before_append:3` kills the process when it reaches the place for the third time. The process sends
SIGKILL to itself, so nothing is flushed and no handler runs. `KOORD_FAILPOINT=before_append:3:15` makes the thread work
for 15 s instead, without a pause. Without the variable, a failpoint costs one attribute
access.

Source: event-bus spec, 12 (named failpoints compiled into the steps).
"""

import os
import signal
import time
from typing import Final

VARIABLE: Final = "KOORD_FAILPOINT"


class _Armed:
    """The failpoint of this process that is armed."""

    def __init__(self, text: str) -> None:
        name, *numbers = text.split(":")
        if len(numbers) > 2 or not all(_is_positive(number) for number in numbers):
            rule = "<name>[:<passage, from 1>[:<seconds>]]"
            raise ValueError(f"{VARIABLE}: must be {rule}, got {text!r}")
        self.name = name
        self.left = int(numbers[0]) if numbers else 1
        self.block_seconds = int(numbers[1]) if len(numbers) > 1 else 0


def _is_positive(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text) > 0


_armed: Final = _Armed(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None


def failpoint(name: str) -> None:
    """Kill this process with SIGKILL if `KOORD_FAILPOINT` names this place and the place was reached often enough.
    Tests use it. `KOORD_FAILPOINT=before_append:3` means: kill when `failpoint("before_append")` is called the third
    time. With a third part, such as `before_append:3:15`, the call works for 15 s instead.
    """
    if _armed is None or _armed.name != name:
        return
    _armed.left -= 1
    if _armed.left != 0:
        return
    if not _armed.block_seconds:
        os.kill(os.getpid(), signal.SIGKILL)
    end = time.monotonic() + _armed.block_seconds
    while time.monotonic() < end:
        pass
