"""What is waited out rather than failed for: errors that say the world is away, and the pauses between tries.

`cycle` and `archive` begin again after a pause; only time ends such errors.
"""

from typing import Final

from koordcore.bus.client.connection import NoAnswer, NotConnected

LOG_ERRORS: Final = (NoAnswer, NotConnected, TimeoutError)
"""The log does not answer at present."""
FIRST_PAUSE: Final = 0.2
"""Real seconds before the second try; doubled for each further one."""
LONGEST_PAUSE: Final = 5.0


def first_line(error: BaseException) -> str:
    """An error as one line; drivers add the server's whole context below it."""
    return (str(error).splitlines() or [type(error).__name__])[0]
