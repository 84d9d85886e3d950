"""The user of the operating system that runs this process, as records name it."""

import getpass
import os
import platform


def user_of_the_process() -> str:
    """Return the name of the user of this process, or its number if it has no name, as in a container."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def user_at_host() -> str:
    """Return "user@host" for requests of a person who runs a command."""
    return f"{user_of_the_process()}@{platform.node()}"
