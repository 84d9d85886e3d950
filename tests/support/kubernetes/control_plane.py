"""A real control plane: etcd, kube-apiserver, kube-controller-manager and kubectl of one Kubernetes version.

`make test-kubernetes` builds the programs into var/kubernetes-tools. RBAC is on, anonymous requests are refused, and
etcd does not wait for the disk. There are no kubelets; `support.kubernetes.kubelets` stands in for them.

    with running_control_plane(directory) as plane:
        plane.kubectl("apply", "-k", "k8s/overlays/dev")
"""

import asyncio
import json
import os
import subprocess
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from koordcore.bus.setup.tls_files import TlsFiles, ensure_tls_files
from koordcore.embedded.ports import free_ports
from koordcore.embedded.process import NEVER_RESTART, ChildProcess, ProcessSpec
from koordcore.service.clock import SystemClock
from support.until import until_blocking

Json = dict[str, Any]

ROOT = Path(__file__).parents[3]
TOOLS = ROOT / "var" / "kubernetes-tools"
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl")
START_SECONDS = 180.0
PEM = (Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())

ADMIN_TOKEN = "admin-token"
CONTROLLER_TOKEN = "controller-token"
CONTROLLERS = "*,-node-lifecycle-controller,-node-ipam-controller"


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
        url: Address of the API server.
        tls: Certificate authority and certificate of the API server.
        directory: Folder of logs and kubeconfigs.
    """

    url: str
    tls: TlsFiles
    directory: Path
    processes: dict[str, ChildProcess] = field(default_factory=dict[str, ChildProcess])

    def kubeconfig(self, name: str, token: str) -> Path:
        """Write a kubeconfig for a bearer token, and return its file."""
        file = self.directory / f"{name}.kubeconfig"
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": {"server": self.url, "certificate-authority": str(self.tls.ca)}}],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": name}}],
            "current-context": "test",
        }
        file.write_text(yaml.safe_dump(document), encoding="utf-8")
        return file

    def ask(self, *arguments: str, stdin: str | None = None, user: Path | None = None) -> Answer:
        """Run kubectl and return what it printed, whether it succeeded or not.

        Args:
            arguments: Arguments of kubectl.
            stdin: Text for its standard input.
            user: Kubeconfig of the user, or None for the administrator.
        """
        config = user or self.directory / "admin.kubeconfig"
        done = subprocess.run(
            [str(TOOLS / "kubectl"), "--kubeconfig", str(config), *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            cwd=ROOT,
            env={"HOME": str(self.directory), "PATH": os.environ["PATH"]},
            timeout=300,
            check=False,
        )
        return Answer(done.stdout, done.stderr, done.returncode)

    def is_ready(self) -> bool:
        """Whether every post-start hook of the API server is done."""
        server = self.processes["kube-apiserver"]
        assert server.is_running, f"kube-apiserver ended: {server.last_words()}"
        return self.ask("get", "--raw", "/readyz").out == "ok"

    def has_accounts(self) -> bool:
        """Whether the controller manager has made the ServiceAccount without which no pod is accepted."""
        return self.ask("get", "serviceaccount", "default", "-n", "default").code == 0

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


@contextmanager
def running_control_plane(directory: Path) -> Generator[ControlPlane]:
    """Start a control plane in a folder of its own, and end it afterwards."""
    etcd, peer, secure, controllers = free_ports(4)
    tls = ensure_tls_files(directory / "tls", now=SystemClock().now())
    plane = ControlPlane(url=f"https://127.0.0.1:{secure}", tls=tls, directory=directory)
    plane.kubeconfig("admin", ADMIN_TOKEN)
    signing = directory / "accounts.key"  # Kubernetes signs tokens with RSA or ECDSA keys only
    signing.write_bytes(ec.generate_private_key(ec.SECP256R1()).private_bytes(*PEM))
    tokens = directory / "tokens.csv"
    tokens.write_text(
        f'{ADMIN_TOKEN},admin,admin,"system:masters"\n{CONTROLLER_TOKEN},system:kube-controller-manager,controllers\n',
        encoding="utf-8",
    )
    data = directory / "etcd"
    client, member = f"http://127.0.0.1:{etcd}", f"http://127.0.0.1:{peer}"
    commands = {
        "etcd": (
            *("--data-dir", str(data), "--unsafe-no-fsync", "--log-level", "warn", "--name", "test"),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", member, "--initial-advertise-peer-urls", member),
            *("--initial-cluster", f"test={member}"),
        ),
        "kube-apiserver": (
            *(f"--etcd-servers={client}", "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1"),
            *(f"--secure-port={secure}", f"--tls-cert-file={tls.server_certificate}"),
            *(f"--tls-private-key-file={tls.server_key}", "--endpoint-reconciler-type=none"),
            *(f"--service-account-key-file={signing}", f"--service-account-signing-key-file={signing}"),
            *("--service-account-issuer=https://kubernetes.default.svc", "--service-cluster-ip-range=10.0.0.0/16"),
            *("--authorization-mode=Node,RBAC", "--anonymous-auth=false", f"--token-auth-file={tokens}"),
            "--allow-privileged=true",
        ),
        "kube-controller-manager": (
            f"--kubeconfig={plane.kubeconfig('controllers', CONTROLLER_TOKEN)}",
            *(f"--service-account-private-key-file={signing}", f"--root-ca-file={tls.ca}"),
            "--use-service-account-credentials=true",
            *("--leader-elect=false", f"--controllers={CONTROLLERS}", "--kube-api-qps=200", "--kube-api-burst=400"),
            *("--bind-address=127.0.0.1", f"--secure-port={controllers}"),
        ),
    }
    loop = asyncio.new_event_loop()
    try:
        for name, arguments in commands.items():
            ready = f"{client}/health" if name == "etcd" else None
            spec = ProcessSpec(
                name=name,
                argv=(str(TOOLS / name), *arguments),
                ready=ready,
                ready_seconds=START_SECONDS,
                log_file=directory / f"{name}.log",
                restart=NEVER_RESTART,
            )
            plane.processes[name] = ChildProcess(spec)
            loop.run_until_complete(plane.processes[name].start())
            if name == "kube-apiserver":
                until_blocking(plane.is_ready, "the API server is ready", seconds=START_SECONDS)
        # Pods can be created once their namespace has a ServiceAccount.
        until_blocking(plane.has_accounts, "the controllers made a ServiceAccount", seconds=START_SECONDS)
        yield plane
    finally:
        for process in reversed(plane.processes.values()):
            loop.run_until_complete(process.kill())
        loop.close()
