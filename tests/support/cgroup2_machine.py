"""Run a command on a virtual machine with cgroup v2: `python tests/support/cgroup2_machine.py [--] COMMAND...`.

Most nodes have cgroup v2, and a machine whose controllers are on v1 cannot have them on both. So Debian's kernel boots
in qemu, without acceleration, with the file system of this machine as its own (read-only, changes are lost), at the
same paths. Qemu and kernel come from apt, are unpacked below var/, and are not installed. Needs apt, no privileges.

The machine has 4 CPUs in 2 sockets, 3 NUMA nodes of which the third has only memory, two disks (null_blk), and all
controllers of cgroup v2 on in its root. Without a command, tests of the agent run that read and write files of the
kernel. Those with busy processes (test_real_cgroup) lock an emulated machine up if two cores have other work.
"""

import gzip
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).parents[2]
FOLDER: Final = REPOSITORY / "var" / "cgroup2"
UNPACKED: Final = FOLDER / "root"
QEMU: Final = UNPACKED / "usr/bin/qemu-system-x86_64"
SECONDS: Final = 1_800
MODULES: Final = ("virtio_pci", "9pnet_virtio", "9p", "overlay", "null_blk")
TESTS: Final = (
    "services/agent/tests/kernel/test_block_io.py",
    "services/agent/tests/machine/test_cpus_and_numa_nodes.py",
)
ENDED: Final = "cgroup2 machine: status "
INIT: Final = """#!/bin/busybox sh
B=/bin/busybox
$B mkdir -p /proc /sys /dev /host /changes /new
$B mount -t proc proc /proc
$B mount -t devtmpfs dev /dev
for module in {modules}; do $B insmod /modules/$module.ko {options}; done
$B mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=262144 host /host
$B mount -t tmpfs tmpfs /changes
$B mkdir -p /changes/upper /changes/work
$B mount -t overlay -o lowerdir=/host,upperdir=/changes/upper,workdir=/changes/work overlay /new
$B mount -t proc proc /new/proc
$B mount -t sysfs sys /new/sys
$B mount -t devtmpfs dev /new/dev
$B mount -t tmpfs tmpfs /new/run
$B mount -t cgroup2 none /new/sys/fs/cgroup
$B ip link set lo up
for controller in cpuset cpu io memory pids; do echo +$controller > /new/sys/fs/cgroup/cgroup.subtree_control; done
$B chroot /new /bin/bash {script}
echo "{ended}$?"
$B poweroff -f
"""
SCRIPT: Final = """export HOME=/root PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin PYTHONDONTWRITEBYTECODE=1
cd {repository} && exec {command}
"""


def packages() -> list[str]:
    """Qemu with the libraries that it needs, the kernel of this release, and busybox for the first process."""
    wanted = ("qemu-system-x86", "qemu-system-common", "qemu-system-data", "seabios", "ipxe-qemu")
    without = ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")
    listed = subprocess.run(
        ["apt-cache", "depends", "--recurse", *(f"--no-{name}" for name in without), *wanted[:2]],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    libraries = sorted({line.strip() for line in listed.splitlines() if re.match(r"^lib[\w.+-]+$", line.strip())})
    installed = {
        line.partition(":")[0]
        for line in subprocess.run(
            ["dpkg-query", "-W", "-f=${Package}\\n"], capture_output=True, text=True, check=True
        ).stdout.splitlines()
    }
    kernel = subprocess.run(["apt-cache", "depends", "linux-image-amd64"], capture_output=True, text=True, check=True)
    image = re.search(r"Depends: (linux-image-\S+)", kernel.stdout)
    if image is None:
        raise SystemExit("apt knows no linux-image-amd64")
    return [*wanted, *(name for name in libraries if name not in installed), image[1], "busybox-static"]


def unpack() -> None:
    """Download and unpack the packages. No-op if it was done."""
    done = FOLDER / ".unpacked"
    if done.exists():
        return
    shutil.rmtree(FOLDER, ignore_errors=True)
    downloads = FOLDER / "packages"
    downloads.mkdir(parents=True)
    subprocess.run(["apt-get", "download", "-qq", *packages()], cwd=downloads, check=True)
    for package in sorted(downloads.iterdir()):
        subprocess.run(["dpkg", "-x", str(package), str(UNPACKED)], check=True)
    shutil.copytree(UNPACKED / "usr/share/seabios", UNPACKED / "usr/share/qemu", dirs_exist_ok=True)
    done.touch()


def modules() -> dict[str, Path]:
    """The modules that the machine needs, each after those on which it depends: name -> file."""
    files = {file.stem.replace("-", "_"): file for file in (UNPACKED / "lib/modules").glob("*/kernel/**/*.ko")}
    found: dict[str, Path] = {}

    def add(name: str) -> None:
        if name in found:
            return
        listed = re.search(rb"\0depends=([^\0]*)\0", files[name].read_bytes())
        for needed in (listed[1].decode() if listed else "").split(","):
            if needed:
                add(needed.replace("-", "_"))
        found[name] = files[name]

    for name in MODULES:
        add(name)
    return found


def archive(files: Iterable[tuple[str, int, bytes]]) -> bytes:
    """A cpio archive (newc) of paths with mode and content, as the kernel unpacks it at the start."""

    def entry(number: int, path: str, mode: int, content: bytes) -> Iterator[bytes]:
        name = path.encode() + b"\0"
        fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name), 0)
        head = b"070701" + b"".join(b"%08X" % field for field in fields) + name
        yield head + b"\0" * (-len(head) % 4)
        yield content + b"\0" * (-len(content) % 4)

    every = [*files, ("TRAILER!!!", 0, b"")]
    return b"".join(part for number, one in enumerate(every) for part in entry(number, *one))


def first_files(script: Path) -> Iterator[tuple[str, int, bytes]]:
    needed = modules()
    init = INIT.format(
        modules=" ".join(needed),
        options="$([ $module = null_blk ] && echo nr_devices=2 gb=1)",
        script=script,
        ended=ENDED,
    )
    for folder in ("bin", "modules"):
        yield folder, 0o040755, b""
    yield "init", 0o100755, init.encode()
    yield "bin/busybox", 0o100755, (UNPACKED / "bin/busybox").read_bytes()
    for name, file in needed.items():
        yield f"modules/{name}.ko", 0o100644, file.read_bytes()


def run(command: list[str]) -> int:
    """Run a command in the folder of the repository on the machine, and return its exit status."""
    unpack()
    script, image = FOLDER / "script.sh", FOLDER / "first-files.gz"
    script.write_text(SCRIPT.format(repository=shlex.quote(str(REPOSITORY)), command=shlex.join(command)))
    image.write_bytes(gzip.compress(archive(first_files(script)), 1))
    (kernel,) = (UNPACKED / "boot").glob("vmlinuz-*")
    memory = ["-m", "2048", "-smp", "4,sockets=2,cores=2,threads=1"]
    for node, (size, cpus) in enumerate(((1_024, ",cpus=0-1"), (768, ",cpus=2-3"), (256, ""))):
        memory += ["-object", f"memory-backend-ram,id=m{node},size={size}M"]
        memory += ["-numa", f"node,nodeid={node}{cpus},memdev=m{node}"]
    words = [
        str(QEMU), "-L", str(UNPACKED / "usr/share/qemu"), "-M", "q35", "-cpu", "max", "-accel", "tcg,thread=multi",
        *memory, "-kernel", str(kernel), "-initrd", str(image),
        "-append", "console=ttyS0 quiet panic=-1 mitigations=off",
        "-nographic", "-no-reboot", "-nic", "none",
        "-virtfs", "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap",
    ]  # fmt: skip
    libraries = ":".join(str(UNPACKED / folder) for folder in ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"))
    status = 1
    with subprocess.Popen(
        ["timeout", str(SECONDS), *words],
        env={**os.environ, "LD_LIBRARY_PATH": libraries},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as machine:
        assert machine.stdout is not None
        for line in machine.stdout:
            _, said, number = line.strip().rpartition(ENDED)
            if said:
                status = int(number)
            else:
                sys.stdout.write(line)
                sys.stdout.flush()
    return status


if __name__ == "__main__":
    given = [word for word in sys.argv[1:] if word != "--"]
    pytest = [str(REPOSITORY / ".venv/bin/python"), "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "--color=no"]
    # without what the whole suite imports, which takes minutes here
    sys.exit(run(given or [*pytest, "--noconftest", "--override-ini=addopts=", *TESTS]))
