"""Decide where the data of an embedded Postgres is stored and which user runs the server, and find a running one there.

Postgres refuses to run as root. If we are root, it runs as an unprivileged user. That user must be able to reach the
data and the binaries. It cannot if the checkout is below a private folder such as /root. Then the data and a copy of
the binaries are stored below /var/tmp, and a pointer file in the requested place names the data.
"""

import hashlib
import os
import pwd
import shutil
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from koordcore.embedded.errors import AlreadyRunningError, EmbeddedError
from koordcore.embedded.identity import command_line, start_mark


def live_postmaster(data: Path, *, status: str | None = None) -> int | None:
    """Return the pid of the Postgres server that runs on this data directory; None if none runs. After a kill -9, the
    pid file may name a pid that has ended or belongs to another program. Both count as no server. `status`: if given,
    the server must have written this status into its pid file. It writes "ready" when it accepts connections, also
    after recovery.
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
    """Remove the pid file of a Postgres data directory if its pid now belongs to another process. Postgres refuses to
    start with such a file.
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


TRAVERSABLE_ROOT = Path("/var/tmp")  # noqa: S108  survives a reboot, unlike /tmp; folders in it are checked to be ours
UNPRIVILEGED_USER = "nobody"


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """User id and group id of the system user that runs Postgres."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """Paths of an embedded Postgres, and the user that runs it."""

    data: Path  # The data directory. It may not exist yet.
    installation: Path  # Folder with bin, lib and share
    owner: Owner | None  # User that runs the server. None: the current user.
    pointer: Path | None  # File in the requested place that names `data`. None if the data is in the requested place.


def locate(data_dir: Path, installation: Path) -> Location:
    """Decide where the data of an embedded Postgres is stored and which user runs it. Create the folders that this
    needs. If we are root and the other user cannot enter the requested place, data and a copy of the programs are
    stored below /var/tmp. A pointer file in the requested place then names the data. Without the pointer file, such
    data is deleted, so that deleting `var/` gives an empty database.

    `installation`: folder with bin, lib and share.

    Raises:
        EmbeddedError: A folder below /var/tmp belongs to another user.
        AlreadyRunningError: The pointer file was deleted but a server still runs on the data.
    """
    data_dir = data_dir.absolute()
    if os.geteuid() != 0:
        return Location(data=data_dir, installation=installation, owner=None, pointer=None)
    pointer = pointer_file(data_dir)
    data = data_dir
    owner = _owner_of(data_dir)
    if is_traversable(data_dir.parent, owner):
        pointer = None
    else:
        data = _own_base(data_dir) / "data"
        if not pointer.exists() and data.exists():
            running = live_postmaster(data)
            if running is not None:
                raise AlreadyRunningError(what=f"a Postgres on {data}, formerly of {data_dir},", pid=running)
            shutil.rmtree(data)
        owner = _owner_of(data)
        pointer.parent.mkdir(parents=True, exist_ok=True)
        pointer.write_text(f"{data}\n")
    return Location(data=data, installation=_reachable(installation, owner), owner=owner, pointer=pointer)


def pointer_file(data_dir: Path) -> Path:
    """Return the path of the pointer file: if the data is not in `data_dir`, this file names its folder."""
    return data_dir.with_name(data_dir.name + ".location")


def is_traversable(path: Path, owner: Owner) -> bool:
    """Return whether the user `owner` may enter the folder `path` and all folders above it. Folders that do not exist
    yet count as enterable.
    """
    for part in (path, *path.parents):
        try:
            status = part.stat()
        except FileNotFoundError:
            continue
        if status.st_uid == owner.uid:
            needed = stat.S_IXUSR
        elif status.st_gid == owner.gid:
            needed = stat.S_IXGRP
        else:
            needed = stat.S_IXOTH
        if not status.st_mode & needed:
            return False
    return True


def _owner_of(data: Path) -> Owner:
    """Return the owner of existing data, else the unprivileged user. So data stays usable if the service later runs as
    another user.
    """
    if data.exists() and data.stat().st_uid != 0:
        return Owner(uid=data.stat().st_uid, gid=data.stat().st_gid)
    entry = pwd.getpwnam(UNPRIVILEGED_USER)
    return Owner(uid=entry.pw_uid, gid=entry.pw_gid)


def _own_base(wanted: Path) -> Path:
    """Return our own folder below /var/tmp for this path; refuse a folder of another user."""
    digest = hashlib.sha256(str(wanted).encode()).hexdigest()[:12]
    base = TRAVERSABLE_ROOT / f"koordstream-{digest}"
    base.mkdir(mode=0o755, exist_ok=True)
    status = base.lstat()
    writable_by_others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or writable_by_others:
        raise EmbeddedError(
            f"{base} is needed for {wanted} but belongs to uid {status.st_uid}; remove it and try again"
        )
    base.chmod(0o755)  # the umask may have taken the right to pass
    return base


def _reachable(installation: Path, owner: Owner) -> Path:
    """Return the installation, or a copy below /var/tmp if the user cannot reach it. The programs find the wheel's
    shared libraries relative to themselves, so the copy keeps the wheel's layout: `<package>/<installation>`, with the
    libraries in `<package>.libs` (Linux) or `<package>/.dylibs` (macOS).
    """
    program = installation / "bin" / "postgres"
    if is_traversable(program, owner):
        return installation
    package = installation.parent
    version = program.stat()
    base = _own_base(installation / f"{version.st_size}-{version.st_mtime_ns}")
    wheel = base / "wheel"
    if not wheel.exists():
        partial = Path(tempfile.mkdtemp(dir=base))
        for source in (installation, package.with_name(f"{package.name}.libs"), package / ".dylibs"):
            if source.exists():
                shutil.copytree(source, partial / source.relative_to(package.parent), symlinks=True)
        for path in (partial, *partial.rglob("*")):
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or path.stat().st_mode & stat.S_IXUSR else 0o644)
        # A rename makes a copy interrupted halfway invisible; a concurrent copy that won is as good as ours.
        try:
            partial.rename(wheel)
        except OSError:
            shutil.rmtree(partial)
            if not wheel.exists():
                raise
    return wheel / package.name / installation.name
