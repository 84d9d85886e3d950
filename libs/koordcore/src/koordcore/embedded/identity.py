"""Which process is meant: its pid with its start time, because the kernel reuses pids.

A command that only reads imports this module, so it imports neither asyncio nor subprocess.
"""

import os
import signal
from pathlib import Path

import msgspec


class ProcessIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Pid and start time of a process.
    Together they are unique until the machine restarts, although pids are reused.
    """

    pid: int  # Process id
    started: str  # Start time, to compare only: clock ticks since boot on Linux, the output of `ps` on other systems


def start_mark(pid: int) -> str | None:
    """Return the start time of a live process as a text that can only be compared. None if no process has this pid or
    the process is a zombie.
    """
    if Path("/proc/self/stat").exists():
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return None
        # The second field is the program's name in parentheses and may hold spaces; fields count from after it.
        fields = stat.rpartition(")")[2].split()
        state, start_ticks = fields[0], fields[19]
        return None if state in {"Z", "X"} else start_ticks
    import subprocess  # only where there is no /proc

    answer = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return answer.stdout.strip() or None


def identify(pid: int) -> ProcessIdentity | None:
    """Return the identity of a live process; None if no live process has this pid."""
    mark = start_mark(pid)
    return None if mark is None else ProcessIdentity(pid=pid, started=mark)


def is_alive(process: ProcessIdentity) -> bool:
    """Return whether this process still runs; False if another process has its pid now."""
    return start_mark(process.pid) == process.started


def running_seconds(process: ProcessIdentity) -> float | None:
    """Return for how many seconds a process has been running; None if it ended or the system does not report it."""
    try:
        uptime = float(Path("/proc/uptime").read_text().split()[0])
    except OSError:
        return None
    return uptime - int(process.started) / os.sysconf("SC_CLK_TCK") if is_alive(process) else None


def send_signal(process: ProcessIdentity, number: signal.Signals) -> bool:
    """Send a signal to a process. Return False if it has ended, also if another process has its pid now."""
    if not is_alive(process):
        return False
    try:
        os.kill(process.pid, number)
    except ProcessLookupError:
        return False
    return True


def command_line(pid: int) -> str:
    """Return the command line of a live process, arguments separated by spaces; see `command_words`."""
    return " ".join(command_words(pid)).strip()


def command_words(pid: int) -> list[str]:
    """Return the command line of a live process. Where there is no /proc, arguments with spaces are several words.
    Empty if the process has ended, or if this user may not read its command line.
    """
    if Path("/proc/self/stat").exists():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        except OSError:
            return []
        return words.removesuffix("\0").split("\0") if words else []
    import subprocess

    answer = subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return answer.stdout.split()
