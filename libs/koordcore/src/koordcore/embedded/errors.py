"""Errors of servers and services that run as child processes.

Everything else in this package raises only these. Next module to read: `process`.
"""

from pathlib import Path


class EmbeddedError(Exception):
    """A child process could not be prepared, started or stopped. The message names the process and the reason."""

    exit_status = 1  # Exit status of a program that ends with this error


class NotRestartableError(EmbeddedError):
    """A child process cannot be started before a person has acted, so that it is not restarted."""

    exit_status = 3


class BinaryNotFoundError(EmbeddedError):
    """A server program is missing from this environment, or is too old to store the log safely."""


class PortInUseError(EmbeddedError):
    """Another process already listens on a configured port.

    Args:
        owner: Name of the process that should have listened on it.
    """

    def __init__(self, *, owner: str, port: int) -> None:
        super().__init__(
            f"{owner}: port {port} on 127.0.0.1 is already in use; "
            "stop the program that listens there, or choose other ports (--port-base)"
        )
        self.owner = owner
        self.port = port


class StartError(EmbeddedError):
    """A child process ended, or did not become ready in time.

    Args:
        log_tail: The last lines of its log, also part of the message.
        exit_status: Exit status of a program that ends with this error.
    """

    def __init__(self, *, name: str, reason: str, log_file: Path | None, log_tail: str, exit_status: int = 1) -> None:
        where = f" (log: {log_file})" if log_file is not None else ""
        super().__init__(f"{name}: {reason}{where}" + (f"\n{log_tail}" if log_tail else ""))
        self.name = name
        self.reason = reason
        self.log_tail = log_tail
        self.exit_status = exit_status


class AlreadyRunningError(EmbeddedError):
    """A live process already uses the data directory or the state file."""

    def __init__(self, *, what: str, pid: int) -> None:
        super().__init__(f"{what} is already running as process {pid}")
        self.pid = pid
