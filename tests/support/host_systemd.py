"""A host of its own for tests: the files of this machine in namespaces, with a real systemd as its first process.

What the host writes stays in memory and ends with it. Its /run and /tmp are empty.
"""

import contextlib
import os
import subprocess
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support.until import until_blocking

PROGRAM: Final = Path("/lib/systemd/systemd")
TARGET: Final = "koord-test.target"
CGROUPS: Final = Path("/sys/fs/cgroup")
HIERARCHIES: Final = {
    version: folder
    for version, folder in ((1, CGROUPS / "systemd"), (2, CGROUPS / "unified"), (2, CGROUPS))
    if (folder / "cgroup.procs").exists()
}
"""Version of control groups -> where this machine has the hierarchy for processes. A machine may have both versions."""
_START: Final = f"""
set -e
folder=$1 shared=$2 inside=$3 version=$4
mount --make-rprivate /
mount -t tmpfs tmpfs $folder
mkdir $folder/changes $folder/work $folder/root
root=$folder/root
mount -t overlay overlay -o lowerdir=/,upperdir=$folder/changes,workdir=$folder/work $root
mount -t proc proc $root/proc
mount -t sysfs -o ro sysfs $root/sys
for place in run tmp dev; do mount -t tmpfs tmpfs $root/$place; done
if [ $version = 1 ]; then
  mount -t tmpfs tmpfs $root/sys/fs/cgroup
  mkdir $root/sys/fs/cgroup/systemd
  mount -t cgroup -o none,name=systemd cgroup $root/sys/fs/cgroup/systemd
else
  mount -t cgroup2 cgroup $root/sys/fs/cgroup
fi
for device in null zero full random urandom tty; do
  touch $root/dev/$device
  mount --bind /dev/$device $root/dev/$device
done
ln -s /proc/self/fd $root/dev/fd
mkdir $root/dev/pts $root/dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts $root/dev/pts
ln -s pts/ptmx $root/dev/ptmx
mkdir -p $root$inside
mount --bind $shared $root$inside
: > $root/etc/fstab
rm -rf $root/etc/systemd/system
mkdir $root/etc/systemd/system
printf '[Unit]\\nDefaultDependencies=no\\nAllowIsolate=yes\\n' > $root/etc/systemd/system/{TARGET}
cd $root
mkdir outside
pivot_root . outside
umount --lazy /outside
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin container=koord {PROGRAM} --system --unit={TARGET}
"""


def missing_systemd() -> str:
    """Why no host can be made; "" if it can."""
    if not PROGRAM.exists():
        return f"no {PROGRAM}: apt-get install systemd"
    return "" if os.geteuid() == 0 else "namespaces with systemd need root"


@dataclass(frozen=True)
class HostSystemd:
    """A running host.

    Attributes:
        pid: Process id of its systemd.
    """

    pid: int

    @property
    def root(self) -> Path:
        """Where its files lie for this process. Absolute links in it lead to files of this machine."""
        return Path(f"/proc/{self.pid}/root")

    def run(self, *words: str) -> str:
        """Run a program of the host and return its output."""
        inside = ["nsenter", f"--target={self.pid}", "--mount", "--pid", "--root", "--wd=/", *words]
        return subprocess.run(inside, capture_output=True, text=True, check=False, timeout=60).stdout

    def beside(self, *words: str) -> list[str]:
        """Return the command that runs a program of this machine among the processes of the host.

        systemd answers only peers whose process it can see, as it sees those of pods.
        """
        return ["nsenter", f"--target={self.pid}", "--pid", *words]


@contextlib.contextmanager
def host_systemd(folder: Path, *, shared: Path, inside: str, cgroups: int) -> Generator[HostSystemd]:
    """Start a host, and end it with all of its processes.

    Args:
        folder: Empty folder for its files.
        shared: Folder of this machine that the host sees.
        inside: Where it sees it.
        cgroups: Version of its control groups, a key of `HIERARCHIES`. They may have no controllers.
    """
    group = HIERARCHIES[cgroups] / f"koord-host-{os.getpid()}"
    group.mkdir()
    namespaces = ("--mount", "--pid", "--uts", "--ipc", "--cgroup", "--fork", "--kill-child")
    words = ("sh", "-c", _START, "sh", str(folder), str(shared), inside, str(cgroups))
    into = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
    with (folder.parent / "systemd.log").open("wb") as log:
        outer = subprocess.Popen(
            ["sh", "-c", into, str(group), "unshare", *namespaces, *words], stdout=log, stderr=log, stdin=log
        )
    try:
        children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children")
        until_blocking(lambda: children.read_text().split(), "the host's first process")
        host = HostSystemd(int(children.read_text()))
        until_blocking((host.root / "run/systemd/private").exists, "systemd listens")
        yield host
    finally:
        outer.kill()
        outer.wait()
        until_blocking(lambda: _removed(group), "the processes of the host have ended")


def _removed(group: Path) -> bool:
    """Remove a group and those below it; whether it is gone."""
    for folder, _, _ in os.walk(group, topdown=False):
        with contextlib.suppress(OSError):
            Path(folder).rmdir()
    return not group.exists()
