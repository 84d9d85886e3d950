"""A dockerd of one's own with the busybox image, without a network; its command line speaks to any socket."""

import contextlib
import shutil
import subprocess
from collections.abc import Generator
from pathlib import Path

from koordctl.stack.containers import image_archive, missing_program
from support.until import until_blocking

SECONDS = 60


def missing_docker() -> str:
    """What this machine lacks for a real dockerd; "" if nothing."""
    for program in ("dockerd", "docker"):
        if shutil.which(program) is None:
            return f"no {program} (apt-get install docker.io)"
    return missing_program()


def docker(socket: Path, *arguments: str, stdin: str | None = None) -> str:
    """Run one command of the docker command line, and return what it prints.

    raises    AssertionError when the command fails
    """
    command = ["docker", "-H", f"unix://{socket}", *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, f"{arguments}: {done.stderr}"
    return done.stdout


@contextlib.contextmanager
def dockerd(folder: Path) -> Generator[Path]:
    """Run a dockerd in a folder, with the image loaded; its socket."""
    socket = folder / "docker.sock"
    options = ("--bridge", "none", "--iptables=false", "--ip6tables=false", "--storage-driver", "vfs")
    folders = ("--data-root", str(folder / "data"), "--exec-root", str(folder / "exec"))
    with (folder / "dockerd.log").open("wb") as log:
        process = subprocess.Popen(
            ["dockerd", *folders, "--host", f"unix://{socket}", "--pidfile", str(folder / "pid"), *options],
            stdout=log,
            stderr=log,
        )
    try:

        def answers() -> bool:
            command = ["docker", "-H", f"unix://{socket}", "info"]
            return subprocess.run(command, capture_output=True, timeout=SECONDS, check=False).returncode == 0

        def require_running() -> None:
            assert process.poll() is None, (folder / "dockerd.log").read_text()

        until_blocking(answers, "an answer of dockerd", every=0.2, check=require_running)
        archive = folder / "image.tar"
        archive.write_bytes(image_archive())
        docker(socket, "load", "--input", str(archive))
        yield socket
        for container in docker(socket, "ps", "--all", "--quiet").split():
            docker(socket, "rm", "--force", container)
    finally:
        process.terminate()
        process.wait(timeout=SECONDS)
