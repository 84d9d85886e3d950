"""What a Postgres data directory's pid file says, and whether it still holds.

`postgres` asks before a start and while it waits, `postgres_location` before it deletes anything.
"""

from pathlib import Path

from koordcore.embedded.identity import command_line, start_mark


def live_postmaster(data: Path, *, status: str | None = None) -> int | None:
    """Return the pid of the server that runs on this data directory; None if there is none.

    A pid file left by kill -9 names a pid that is gone, or that by now is another program: both count as none.

    Args:
        status: Demand this state too; the server writes "ready" when it accepts connections, also after recovery.
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
    """Remove a pid file whose pid belongs to another process now; Postgres refuses to start with it."""
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
