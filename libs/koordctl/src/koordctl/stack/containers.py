"""A containerd of the stack's own, for real containers on this machine: its configuration and a small image.

The image holds the busybox of this machine, so nothing is downloaded.
"""

import contextlib
import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Final

from koordcore.embedded.process import ProcessSpec

CONTAINERD: Final = "containerd"
SOCKET: Final = "containerd.sock"
PROGRAMS: Final = (CONTAINERD, "runc", "ctr")
BUSYBOX: Final = Path("/bin/busybox")
IMAGE: Final = "localhost/koord/busybox:1"
LONGEST_SOCKET: Final = 100
"""Longest path of a unix socket in bytes, with some room."""
IMPORT_SECONDS: Final = 60.0
_CONFIG: Final = """
version = 2
root = "{folder}/root"
state = "{folder}/state"
[grpc]
  address = "{folder}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{image}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{folder}/cni"
    conf_dir = "{folder}/cni"
"""


def missing_program() -> str:
    """The program that this machine lacks for real containers; "" if it has all of them."""
    for program in PROGRAMS:
        if shutil.which(program) is None:
            return f"no {program} (apt-get install containerd runc busybox-static)"
    if not BUSYBOX.exists() or b"/ld-" in BUSYBOX.read_bytes()[:4096]:
        return "no static /bin/busybox (apt-get install busybox-static)"
    return ""


def configuration(folder: Path) -> str:
    """A containerd that stores all its data in a folder and needs no network."""
    return _CONFIG.format(folder=folder, image=IMAGE)


def containerd_spec(folder: Path, log_file: Path) -> ProcessSpec:
    """Write the configuration of a containerd, and return the process to start. `folder`: absolute; it is created."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "config.toml"
    file.write_text(configuration(folder))

    async def ready() -> bool:
        return (folder / SOCKET).exists()

    return ProcessSpec(name=CONTAINERD, argv=(CONTAINERD, "-c", str(file)), ready=ready, log_file=log_file)


def import_image(folder: Path) -> None:
    """Import the image `IMAGE`, with the busybox of this machine, into the containerd that runs in a folder.

    Raises:
        subprocess.SubprocessError: containerd refused it, or took too long.
    """
    archive = folder / "image.tar"
    archive.write_bytes(image_archive())
    words = ["ctr", "-a", str(folder / SOCKET), "-n", "k8s.io", "images", "import", "--snapshotter", "native"]
    subprocess.run([*words, str(archive)], check=True, capture_output=True, timeout=IMPORT_SECONDS)


def image_architecture(machine: str) -> str:
    """The name that images have for the architecture of a machine, such as `arm64` for `aarch64`."""
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def image_archive() -> bytes:
    """A Docker archive with busybox, from which containers are created. Their default command sleeps."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for name in ("bin", "tmp", "proc", "sys", "dev", "etc"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        binary = BUSYBOX.read_bytes()
        entry = tarfile.TarInfo("bin/busybox")
        entry.size, entry.mode = len(binary), 0o755
        tar.addfile(entry, io.BytesIO(binary))
        for applet in ("sh", "sleep", "usleep"):
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
    content = layer.getvalue()
    config = json.dumps(
        {
            "architecture": image_architecture(platform.machine()),
            "os": "linux",
            "config": {"Cmd": ["/bin/sleep", "1000000"], "Env": ["PATH=/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(content).hexdigest()}"]},
        }
    ).encode()
    manifest = json.dumps([{"Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]).encode()
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, data in (("layer.tar", content), ("config.json", config), ("manifest.json", manifest)):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return archive.getvalue()


def unusable(folder: Path) -> str:
    """The reason why containers cannot run on this machine with a containerd in this folder; "" if they can."""
    if os.geteuid() != 0:
        return "not root"
    if lacking := missing_program():
        return lacking
    if len(str(folder / SOCKET)) > LONGEST_SOCKET:
        return f"the path of {folder} is too long for a socket"
    if not os.access("/sys/fs/cgroup", os.W_OK):
        return "the cgroup file system is read-only"
    if "kubelet" in _names_of_processes():
        return "a kubelet manages the containers of this machine"
    return ""


def _names_of_processes() -> set[str]:
    names: set[str] = set()
    for comm in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):  # the process may end at any moment
            names.add(comm.read_text().strip())
    return names
