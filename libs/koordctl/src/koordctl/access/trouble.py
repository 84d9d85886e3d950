"""The error that commands raise if the event log cannot be used.

It has its own module so that naming the error does not import the libraries of the log.
"""

from typing import Final

SEE_STATUS: Final = "`koord status` shows whether it runs and leads"


class LogTrouble(Exception):
    """The event log cannot be reached, or it refused a request. The message is a sentence for the user."""
