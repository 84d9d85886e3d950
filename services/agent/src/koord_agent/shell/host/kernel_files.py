"""Reads text files of the kernel: without exceptions for files that are gone, and with any bytes."""

import os

_CHUNK = 65536
_FIRST = 4096
_WHOLE = _FIRST // 2
"""A kernel fills a page with whole records before it stops, and records of long texts (lines, CPUs) are shorter than
half a page: what is shorter than that is all that there is.
"""


def read_kernel_file(path: str) -> str | None:
    """Return the whole text of a file; None if it cannot be read (missing, gone, refused, not supported).

    Bytes that are not ASCII become replacement characters, which the parsers refuse.
    """
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
