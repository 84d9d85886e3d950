"""Read and write text files of the kernel. Missing files and any bytes are read without exceptions.

Also how many files this process may open.
"""

import os
from contextlib import suppress
from pathlib import Path
from resource import RLIMIT_NOFILE, getrlimit, setrlimit

_CHUNK = 65536
_FIRST = 4096
_WHOLE = _FIRST // 2
"""Length below which a read is complete: the kernel fills a page with records shorter than half a page."""


def read_kernel_file(path: str) -> str | None:
    """None if it cannot be read. Non-ASCII bytes become replacement characters, which the parsers refuse."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        data = os.read(descriptor, _FIRST)
        # a kernel hands long files out in pieces; only an empty one is the end
        while len(data) >= _WHOLE and (more := os.read(descriptor, _CHUNK)):
            data += more
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return data.decode("ascii", "replace")


def raise_open_files() -> tuple[int, int]:
    """Raise the soft limit of open files of this process to the hard one, and return both as they were.

    Runtimes start containers with a soft limit of 1024 (containerd 2), because of programs that use select(2). The
    Go runtime raises it at each start. Hardware counters need two descriptors per CPU and container.
    """
    soft, hard = getrlimit(RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):  # a kernel may have a lower limit for one process
            setrlimit(RLIMIT_NOFILE, (hard, hard))
    return soft, hard


def put(path: Path, text: str) -> None:
    """Write in one write. A missing kernel file is not created.

    Raises:
        OSError: The file does not exist, or the kernel refuses the text.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
