"""Read the pid file of a Postgres data directory, and check whether its process still runs.

`postgres` uses it before a start and while it waits for readiness, `postgres_location` before it deletes data.
"""

from pathlib import Path

from koordcore.embedded.identity import command_line, start_mark


def live_postmaster(data: Path, *, status: str | None = None) -> int | None:
    """Return the pid of the Postgres server that runs on this data directory; None if none runs.

    After a kill -9, the pid file may name a pid that has ended or belongs to another program. Both count as no
    server.

    Args:
        data: Data directory.
        status: If given, the server must have written this status into its pid file. It writes "ready" when it accepts
            connections, also after recovery.
    """
    try:
        lines = (data / "postmaster.pid").read_text().splitlines()
        pid = int(lines[0])
    except (OSError, ValueError, IndexError):
        return None
    # The command line is compared because pids are recycled, notably in containers, where they start low.
    if start_mark(pid) is None or str(data) not in command_line(pid):
        return None
    if status is not None and (len(lines) < 8 or lines[7].strip() != status):
        return None
    return pid


def remove_recycled_pid_file(data: Path) -> None:
    """Remove the pid file of a Postgres data directory if its pid now belongs to another process.

    Postgres refuses to start with such a file.
    """
    pid_file = data / "postmaster.pid"
    try:
        pid = int(pid_file.read_text().splitlines()[0])
    except FileNotFoundError:
        return
    except (ValueError, IndexError):
        pid_file.unlink()  # cut short by a crash of the machine
        return
    if start_mark(pid) is not None:
        pid_file.unlink()
