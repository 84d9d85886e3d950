"""Where an embedded Postgres can live and as whom it runs.

Postgres refuses to run as root. When we are root it runs as an unprivileged user, which must be able to
reach both the data and the binaries; a checkout below a private folder such as /root lets it reach
neither. Then the data goes below /var/tmp (with a pointer file where it was asked for) and so does a
copy of the binaries. `postgres` uses what this module decides.
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
from koordcore.embedded.postmaster import live_postmaster

TRAVERSABLE_ROOT = Path("/var/tmp")  # noqa: S108  survives a reboot, unlike /tmp; folders in it are checked to be ours
UNPRIVILEGED_USER = "nobody"


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Numeric ids of the user that Postgres runs as."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """Paths and owner of an embedded Postgres.

    Attributes:
        data: The data directory, perhaps not yet there.
        installation: Folder with bin, lib and share.
        owner: Whom to run as; None: as ourselves.
        pointer: File that names `data`; None when the data is where it was asked for.
    """

    data: Path
    installation: Path
    owner: Owner | None
    pointer: Path | None


def locate(data_dir: Path, installation: Path) -> Location:
    """Decide owner and places, and create what must exist beforehand (a base folder, a copy of the binaries).

    Data below /var/tmp counts only while the pointer file exists: who deletes `var/` gets an empty store.

    Raises:
        EmbeddedError: A folder below /var/tmp belongs to somebody else.
        AlreadyRunningError: The pointer is gone but a server still runs on the data.
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
    """Return the file that tells people and tools where relocated data went."""
    return data_dir.with_name(data_dir.name + ".location")


def is_traversable(path: Path, owner: Owner) -> bool:
    """Return whether the user can pass through `path` and all above it.

    Parts that do not exist yet count as passable.
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
    """Return the owner of existing data, so that a change of user never orphans it; else the unprivileged user."""
    if data.exists() and data.stat().st_uid != 0:
        return Owner(uid=data.stat().st_uid, gid=data.stat().st_gid)
    entry = pwd.getpwnam(UNPRIVILEGED_USER)
    return Owner(uid=entry.pw_uid, gid=entry.pw_gid)


def _own_base(wanted: Path) -> Path:
    """Return a folder of ours below /var/tmp for this path; refuses one that another user has put there."""
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
    """Return the installation itself, or a copy below /var/tmp when the user cannot reach it.

    The programs find the wheel's shared libraries relative to themselves, so the copy keeps the wheel's layout:
    `<package>/<installation>`, with the libraries in `<package>.libs` (Linux) or `<package>/.dylibs` (macOS).
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
