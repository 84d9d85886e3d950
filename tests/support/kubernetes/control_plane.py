"""A real control plane: etcd, kube-apiserver, kube-controller-manager and kubectl of one Kubernetes version.

`make test-kubernetes` builds the programs into var/kubernetes-tools. The processes are those of `koord up
--kubernetes`. There are no kubelets; `support.kubernetes.kubelets` stands in for them.

    with running_control_plane(directory) as plane:
        plane.kubectl("apply", "-k", "k8s/overlays/dev")
"""

import asyncio
import json
import os
import subprocess
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml
from koordcore.bus.setup.tls_files import LOOPBACK_HOSTS, TlsFiles, ensure_tls_files
from koordcore.embedded.ports import free_ports
from koordcore.embedded.process import NEVER_RESTART, ChildProcess
from koordcore.service.clock import SystemClock
from koordctl.stack.kubernetes import control_plane as embedded
from koordctl.stack.kubernetes.programs import ADMIN, API_SERVER, admin_kubeconfig, find_programs

Json = dict[str, Any]

ROOT = Path(__file__).parents[3]
TOOLS = ROOT / "var" / "kubernetes-tools"
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl")


def missing_programs() -> str | None:
    """Return the reason why the control plane cannot start, or None if it can."""
    missing = [name for name in PROGRAMS if not (TOOLS / name).exists()]
    if missing:
        return f"{', '.join(missing)} not built: `make test-kubernetes` needs Go"
    if os.geteuid() != 0:
        return "the webhooks listen on port 443, which needs root"
    return None


class CommandFailed(Exception):
    """Raised if kubectl ends with an error. The message is what it printed."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What kubectl printed.

    Attributes:
        out: Its standard output.
        err: Its standard error: warnings and refusals.
        code: Its exit status.
    """

    out: str
    err: str
    code: int


@dataclass
class ControlPlane:
    """A running control plane.

    Attributes:
        files: Its files, addresses and tokens.
    """

    files: embedded.ControlPlane
    processes: dict[str, ChildProcess] = field(default_factory=dict[str, ChildProcess])

    @property
    def url(self) -> str:
        """Address of the API server."""
        return self.files.url

    @property
    def tls(self) -> TlsFiles:
        """Certificate authority and certificate of the API server."""
        return self.files.tls

    @property
    def directory(self) -> Path:
        """Folder of logs and kubeconfigs."""
        return self.files.folder

    @property
    def admin_token(self) -> str:
        """Bearer token of the administrator."""
        return self.files.tokens[ADMIN]

    def kubeconfig(self, name: str, token: str) -> Path:
        """Write a kubeconfig for a bearer token, and return its file."""
        return self.files.kubeconfig(name, token)

    def ask(self, *arguments: str, stdin: str | None = None, user: Path | None = None) -> Answer:
        """Run kubectl and return what it printed, whether it succeeded or not.

        Args:
            arguments: Arguments of kubectl.
            stdin: Text for its standard input.
            user: Kubeconfig of the user, or None for the administrator.
        """
        return run_kubectl(user or admin_kubeconfig(self.directory), *arguments, stdin=stdin)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl as the administrator and return its standard output.

        Raises:
            CommandFailed: kubectl ended with an error.
        """
        answer = self.ask(*arguments, stdin=stdin)
        if answer.code:
            raise CommandFailed(f"kubectl {' '.join(arguments)}: {answer.err.strip() or answer.out.strip()}")
        return answer.out

    def get(self, *arguments: str) -> Json:
        """Return an object, or a list of objects, as the API server shows it."""
        found: Json = json.loads(self.kubectl("get", "-o", "json", *arguments))
        return found

    def apply(self, *documents: Mapping[str, Any]) -> str:
        """Apply documents as the administrator."""
        return self.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(documents))

    def token(self, account: str, namespace: str = "koordinator-system") -> str:
        """Return a new token of a ServiceAccount."""
        return self.kubectl("create", "token", account, "-n", namespace).strip()


def run_kubectl(kubeconfig: Path, *arguments: str, stdin: str | None = None) -> Answer:
    """Run kubectl with a kubeconfig and return what it printed, whether it succeeded or not."""
    done = subprocess.run(
        [str(TOOLS / "kubectl"), "--kubeconfig", str(kubeconfig), *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={"HOME": str(kubeconfig.parent), "PATH": os.environ["PATH"]},
        timeout=300,
        check=False,
    )
    return Answer(done.stdout, done.stderr, done.returncode)


@contextmanager
def running_control_plane(
    directory: Path, server_flags: Sequence[str] = (), hosts: Sequence[str] = LOOPBACK_HOSTS
) -> Generator[ControlPlane]:
    """Start a control plane in a folder of its own, and end it afterwards.

    Args:
        directory: Its folder.
        server_flags: Flags of the API server besides those of `koord up --kubernetes`.
        hosts: Names and addresses in the certificate of the API server.
    """
    ensure_tls_files(directory / "tls", now=SystemClock().now(), hosts=hosts)
    ports = dict(zip(embedded.PORTS, free_ports(len(embedded.PORTS)), strict=True))
    files = embedded.prepare(directory, directory, find_programs(TOOLS, built=TOOLS), ports)
    plane = ControlPlane(files)
    loop = asyncio.new_event_loop()
    try:
        for spec in embedded.specs(files):
            flags = tuple(server_flags) if spec.name == API_SERVER else ()
            plane.processes[spec.name] = ChildProcess(replace(spec, argv=(*spec.argv, *flags), restart=NEVER_RESTART))
            loop.run_until_complete(plane.processes[spec.name].start())
        yield plane
    finally:
        for process in reversed(plane.processes.values()):
            loop.run_until_complete(process.kill())
        loop.close()
