"""docker-compose.yml on a real dockerd: images, stand-ins for images that cannot be pulled, and the running system.

The base image is made with debootstrap and imported under the name of the image that the Dockerfile names.
"""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from koordcore.embedded.ports import free_ports
from koordcore.embedded.server import nats_server_binary
from support.until import until_blocking

ROOT: Final = Path(__file__).parents[2]
STAND_INS: Final = ROOT / "tests" / "compose" / "stand_ins"
BASE: Final = "python:3.11.14-slim-bookworm"
IMAGE: Final = "koordstream:test"
MIRROR: Final = "http://deb.debian.org/debian"
NEEDED: Final = ("dockerd", "docker", "docker-compose", "debootstrap")
PACKAGES: Final = "python3,python3-pip,python3-venv,python3-dev,ca-certificates"
CORE: Final = (
    "manager-1",
    "manager-2",
    "scheduler-1",
    "scheduler-2",
    "descheduler-1",
    "descheduler-2",
    "projector",
    "agent",
    "objects",
)
"""Services of the file that place pods."""
TOOLS: Final = ROOT / "var" / "compose-tools"
MONITORING: Final = {
    "otel-collector": str(TOOLS / "collector"),
    "jaeger": str(TOOLS / "all-in-one"),
    "prometheus": shutil.which("prometheus") or "",
}
"""Services whose images are stood in for by a program of this machine; Grafana's cannot."""
POD: Final = """
apiVersion: v1
kind: Pod
metadata: {{name: web-{number}, labels: {{app: web}}}}
spec:
  schedulerName: koord-scheduler
  containers: [{{name: main, image: web, resources: {{requests: {{cpu: 250m, memory: 256Mi}}}}}}]
"""
ENDING: Final = ("objects", "objects-host")
"""Services that do something once and end."""


def missing_programs() -> str:
    """The programs that are not installed, as a reason to skip; "" if none is missing."""
    absent = [name for name in NEEDED if shutil.which(name) is None]
    if absent:
        return f"{', '.join(absent)} not installed (apt-get install docker.io docker-compose debootstrap)"
    return "" if os.geteuid() == 0 else "dockerd and debootstrap need root"


def missing_monitoring() -> str:
    """Why the stand-ins of `MONITORING` cannot be built, as a reason to skip; "" if they can."""
    absent = [service for service, program in MONITORING.items() if not Path(program).is_file()]
    return (
        f"no program for {', '.join(absent)}: make test-compose builds them with go (apt-get install prometheus)"
        if absent
        else ""
    )


def run(*words: str, cwd: Path = ROOT, stdin: bytes | None = None, check: bool = True) -> str:
    """Run a program and return its output; its words are in the error if it fails."""
    done = subprocess.run(words, cwd=cwd, input=stdin, capture_output=True, check=False)
    output = done.stdout.decode(errors="replace")
    if check and done.returncode:
        raise AssertionError(f"{' '.join(words)}: status {done.returncode}\n{output}\n{done.stderr.decode()}")
    return output


def docker(*words: str, check: bool = True) -> str:
    """Run `docker`."""
    return run("docker", *words, check=check).strip()


@contextmanager
def running_dockerd(folder: Path, *flags: str) -> Generator[None]:
    """Run dockerd with these flags inside the block, unless one answers already."""

    def answers() -> bool:
        return subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0

    if answers():
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "dockerd.log").open("wb") as log:
        daemon = subprocess.Popen(["dockerd", "--data-root", str(folder / "data"), *flags], stdout=log, stderr=log)
    try:
        until_blocking(answers, "dockerd answers")
        yield
    finally:
        daemon.terminate()
        daemon.wait()


def ensure_images(folder: Path, stand_ins: Sequence[str] = ("nats", "postgres")) -> None:
    """Build the image and the stand-ins; what exists from an earlier run is used again."""
    if not docker("images", "--quiet", BASE):
        root = folder / "base"
        shutil.rmtree(root, ignore_errors=True)
        run("debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(root), MIRROR)
        (root / "usr/local/bin/python3").symlink_to("/usr/bin/python3.11")
        bundle = Path("/etc/ssl/certs/ca-certificates.crt")
        shutil.copy(bundle, root / bundle.relative_to("/"))
        archive = run_bytes("tar", "-C", str(root), "-c", ".")
        changes = ("-c", f"ENV SSL_CERT_FILE={bundle}", "-c", 'CMD ["python3"]')
        run("docker", "import", *changes, "-", BASE, stdin=archive)
        shutil.rmtree(root)
    shutil.copytree(STAND_INS, folder / "stand_ins", dirs_exist_ok=True)
    shutil.copy(nats_server_binary(), folder / "stand_ins" / "nats-server")
    for name in stand_ins:
        run(
            *("docker", "build", "--network", "host", "--quiet", "--tag", f"koord-stand-in-{name}"),
            *("--file", f"{name}.Dockerfile", "."),
            cwd=folder / "stand_ins",
        )
    for service, program in MONITORING.items() if not missing_monitoring() else ():
        shutil.copy(program, folder / "stand_ins" / service)
        run(
            *("docker", "build", "--quiet", "--tag", f"koord-stand-in-{service}", "--build-arg", f"PROGRAM={service}"),
            *("--network", "host", "--file", "monitoring.Dockerfile", "."),
            cwd=folder / "stand_ins",
        )
    run("make", "image", f"IMAGE={IMAGE}", "IMAGE_FLAGS=--network host")


@contextmanager
def prepared_images() -> Generator[None]:
    """Run dockerd with the images inside the block, unless it runs already."""
    folder = ROOT / "var" / "compose-test"
    with running_dockerd(folder):
        ensure_images(folder)
        yield


def run_bytes(*words: str) -> bytes:
    """Run a program and return its output as bytes."""
    return subprocess.run(words, capture_output=True, check=True).stdout


class Compose:
    """The compose project of a test.

    Args:
        project: Name of the project.
        port: Port of the dashboard on this machine.
        flags: Flags of docker-compose, such as profiles.
    """

    def __init__(self, project: str, port: int, *flags: str) -> None:
        jaeger, prometheus = free_ports(2)
        self.project = project
        self._words = ("docker-compose", "--project-name", project, *flags)
        self.environment = {
            **os.environ,
            "KOORD_IMAGE": IMAGE,
            "NATS_IMAGE": "koord-stand-in-nats",
            "POSTGRES_IMAGE": "koord-stand-in-postgres",
            "OTEL_COLLECTOR_IMAGE": "koord-stand-in-otel-collector",
            "JAEGER_IMAGE": "koord-stand-in-jaeger",
            "PROMETHEUS_IMAGE": "koord-stand-in-prometheus",
            "KOORD_DASHBOARD_PORT": str(port),
            "JAEGER_PORT": str(jaeger),
            "PROMETHEUS_PORT": str(prometheus),
        }

    def __call__(self, *words: str, check: bool = True) -> str:
        """Run docker-compose with the images of the test."""
        done = subprocess.run([*self._words, *words], cwd=ROOT, env=self.environment, capture_output=True, check=False)
        output = done.stdout.decode(errors="replace")
        if check and done.returncode:
            raise AssertionError(f"{' '.join(words)}: status {done.returncode}\n{output}\n{done.stderr.decode()}")
        return output

    def koord(self, *words: str, check: bool = True) -> str:
        """Run a `koord` command as the compose file offers it."""
        return self("run", "--rm", "-T", "koord", *words, check=check)

    def container(self, service: str) -> str:
        """The id of the container of a service, running or not."""
        return self("ps", "--all", "--quiet", service).split()[0]

    def state(self, service: str) -> dict[str, Any]:
        """What dockerd knows about a container: its status, health and exit code."""
        found: list[dict[str, Any]] = json.loads(docker("inspect", self.container(service)))
        return found[0]["State"]

    def is_healthy(self, service: str) -> bool:
        """Whether the health check of a service passes, or a service that ends has ended well."""
        state = self.state(service)
        if service in ENDING:
            return state["Status"] == "exited" and state["ExitCode"] == 0
        return state.get("Health", {}).get("Status") == "healthy"

    def wait_healthy(self, *services: str) -> float:
        """Wait until all core services and these are healthy; return the seconds that it took."""
        began = time.monotonic()
        for service in (*CORE, *services):
            until_blocking(lambda service=service: self.is_healthy(service), f"{service} is healthy", seconds=180)
        return time.monotonic() - began

    def pods(self) -> dict[str, str]:
        """Name -> node of every pod, "" while it waits."""
        text = self.koord("get", "pods", "-o", "json", check=False)
        try:
            found: list[dict[str, dict[str, str]]] = json.loads(text)["items"]
        except ValueError:
            return {}
        return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in found}

    def apply_pods(self, first: int, count: int) -> None:
        """Apply pods with the name of a number each.

        Repeated while no manager leads, because a document that was refused for it was not stored.
        """
        folder = ROOT / "var" / "compose-test" / "pods"
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{self.project}-{first}.yaml"
        file.write_text("---".join(POD.format(number=number) for number in range(first, first + count)))
        relative = str(file.relative_to(ROOT))  # the working directory of the container is the repository

        def applied() -> bool:
            self.koord("apply", "-f", relative, check=False)
            return len(self.pods()) >= first + count

        until_blocking(applied, f"{count} pods are stored")

    def start_to_placed_pod(self) -> float:
        """Start the core services, submit a pod, and return the seconds until it is placed."""
        began = time.monotonic()
        self("up", "--detach", "--no-build", *CORE)
        self.wait_healthy()
        self.apply_pods(0, 1)
        until_blocking(lambda: all(self.pods().values()), "the first pod is placed")
        return time.monotonic() - began
