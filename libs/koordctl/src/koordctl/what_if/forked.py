"""Run a function on a copy of this process, and wait for its result."""

import os
from collections.abc import Callable

from koordctl.access.log import LogTrouble


def on_a_copy(work: Callable[[], bytes]) -> bytes:
    """Run a function on a copy of this process, and return its result. Its changes of memory are lost.

    Args:
        work: The function. It must not use connections or locks of other threads.

    Raises:
        LogTrouble: The function raised an exception. Its trace is on standard error.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(reader)
            with os.fdopen(writer, "wb") as pipe:
                pipe.write(work())
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        result = pipe.read()
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0:
        raise LogTrouble("the scheduler could not answer a question about the recorded state")
    return result
