"""A real cluster on this machine: control plane, kubelet on containerd with NRI, kube-proxy, CoreDNS, and Koordstream.

    cluster = Cluster(folder)
    cluster.up()        etcd, kube-apiserver, kube-controller-manager, kube-scheduler and one node
    cluster.install()   the images, and `kubectl apply -k k8s/overlays/dev`
    cluster.down()

`make cluster` does it from a terminal. The programs are those of a release, built from their sources by
`make cluster-tools`.
"""

import csv
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from koordcore.bus.setup.tls_files import LOOPBACK_HOSTS, TlsFiles, ensure_tls_files
from koordcore.embedded.process import log_tail
from koordcore.service.clock import SystemClock
from koordctl.stack.containers import BUSYBOX, image_archive
from koordctl.stack.kubernetes import control_plane as embedded
from koordctl.stack.kubernetes.api import Access, write_kubeconfig
from koordctl.stack.kubernetes.programs import ADMIN, API_SERVER, CONTROLLERS, ETCD, admin_kubeconfig, find_programs
from support.cluster import images
from support.cluster.files import (
    CONTAINERD_SOCKET,
    DNS,
    MANIFESTS,
    PORT,
    SCHEDULER,
    SERVICE_DNS,
    NodeFiles,
    node_user,
    write_tokens,
)
from support.cluster.machine import Machine, missing_rights
from support.kubernetes.control_plane import ROOT, TOOLS, ControlPlane
from support.until import until_blocking

Json = dict[str, Any]

CLUSTER_TOOLS: Final = ROOT / "var" / "cluster-tools"
FOLDER: Final = ROOT / "var" / "cluster"
PROGRAMS: Final = ("kubelet", "kube-proxy", "containerd", "containerd-shim-runc-v2", "ctr", "coredns", "cni/bridge")
PORTS: Final = {"etcd": 2379, "etcd-peer": 2380, "etcd-health": 2381, API_SERVER: PORT, CONTROLLERS: 10257}
SYSTEM: Final = "koordinator-system"
NODES: Final = "koordinator-nodes"
CLAIMS: Final = ("data-nats-0", "data-postgres-0", "koord-backups")
START_SECONDS: Final = 180.0
NODE_PROGRAMS: Final = ("containerd", "kubelet", "kube-proxy")


def unusable() -> str:
    """The reason why no cluster can run on this machine, "" if one can."""
    wanted = [TOOLS / name for name in (ETCD, API_SERVER, CONTROLLERS, "kube-scheduler", "kubectl")]
    missing = [path.name for path in (*wanted, *(CLUSTER_TOOLS / name for name in PROGRAMS)) if not path.exists()]
    if missing:
        return f"{', '.join(missing)} not built: `make cluster-tools` needs Go"
    if not BUSYBOX.exists():
        return "no static /bin/busybox (apt-get install busybox-static)"
    return missing_rights()


@dataclass(frozen=True)
class Cluster:
    """A cluster in a folder.

    Attributes:
        folder: Absolute folder of its state.
    """

    folder: Path

    @cached_property
    def machine(self) -> Machine:
        """The node, which also has the control plane."""
        return Machine(1, self.folder / "node-1")

    @property
    def url(self) -> str:
        """URL of the API server."""
        return f"https://{self.machine.address}:{PORT}"

    @cached_property
    def tls(self) -> TlsFiles:
        """Files of the cluster's authority. The certificate is that of the API server and of the kubelet."""
        services = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "10.0.0.1")
        hosts = (*LOOPBACK_HOSTS, *services, self.machine.name, self.machine.address)
        return ensure_tls_files(self.folder / "tls", now=SystemClock().now(), hosts=hosts)

    @cached_property
    def plane(self) -> ControlPlane:
        """Files of the control plane, and kubectl as the administrator."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_tokens(self.folder / "tokens.csv", (self.machine,))
        _ = self.tls
        programs = find_programs(TOOLS, built=TOOLS)
        files = embedded.prepare(self.folder, self.machine.folder / "log", programs, PORTS)
        ca = self.tls.ca.read_text(encoding="ascii")
        write_kubeconfig(admin_kubeconfig(self.folder), ADMIN, Access(url=self.url, ca=ca, token=files.tokens[ADMIN]))
        return ControlPlane(files)

    @cached_property
    def files(self) -> NodeFiles:
        """Configuration of the node's programs."""
        with (self.folder / "tokens.csv").open(newline="") as lines:
            tokens = {user: token for token, user, *_ in csv.reader(lines)}
        return NodeFiles(self.machine, self.tls, self.url, tokens, CLUSTER_TOOLS)

    # 1. The cluster as a whole

    def up(self) -> None:
        """Start everything, and wait until the node is Ready; also after `machine.stop`, with what was stored."""
        _ = self.plane
        self.machine.start()
        self._start_control_plane()
        self.plane.apply(*_rights(), *_dns(self.machine.address))
        for program in NODE_PROGRAMS:
            self.start_program(program)
        self.machine.spawn("coredns", (str(CLUSTER_TOOLS / "coredns"), "-conf", str(self.files.dns())))
        self._until("Node", self.node_is_ready)

    def down(self) -> None:
        """Stop everything and remove its state."""
        self.machine.remove()
        shutil.rmtree(self.folder, ignore_errors=True)

    def node_is_ready(self) -> bool:
        """Whether the kubelet has reported that it is ready."""
        path = '{.status.conditions[?(@.type=="Ready")].status}'
        return self.plane.ask("get", "node", self.machine.name, "-o", f"jsonpath={path}").out == "True"

    def _start_control_plane(self) -> None:
        for name, argv in self._control_plane():
            self.machine.spawn(name, argv)
            if name == API_SERVER:
                self._until(name, lambda: self.plane.ask("get", "--raw", "/readyz").out == "ok")
        account = ("get", "serviceaccount", "default", "-n", "default")
        self._until(CONTROLLERS, lambda: self.plane.ask(*account).code == 0)

    def _control_plane(self) -> list[tuple[str, Sequence[str]]]:
        """Programs of `koord up --kubernetes`, reached by address, with all controllers; and the scheduler."""
        tls, address = self.tls, self.machine.address
        more = {
            API_SERVER: (
                *("--bind-address=0.0.0.0", f"--advertise-address={address}", "--endpoint-reconciler-type=lease"),
                *(f"--kubelet-client-certificate={tls.client_certificate}", f"--kubelet-client-key={tls.client_key}"),
                *(f"--kubelet-certificate-authority={tls.ca}", "--enable-admission-plugins=NodeRestriction"),
                # The certificate of the kubelet names addresses.
                "--kubelet-preferred-address-types=InternalIP",
            ),
        }
        found: list[tuple[str, Sequence[str]]] = []
        for spec in embedded.specs(self.plane.files):
            argv = [word for word in spec.argv if not word.startswith("--controllers=")]
            found.append((spec.name, (*argv, *more.get(spec.name, ()))))
        config = self.files.kubeconfig(SCHEDULER)
        flags = [f"--{kind}kubeconfig={config}" for kind in ("", "authentication-", "authorization-")]
        return [*found, ("kube-scheduler", (str(TOOLS / "kube-scheduler"), *flags, "--leader-elect=false"))]

    # 2. Programs of the node

    def start_program(self, name: str) -> None:
        """Start containerd, the kubelet or kube-proxy."""
        files, program = self.files, str(CLUSTER_TOOLS / name)
        match name:
            case "containerd":
                # containerd looks for its shim on PATH.
                path = f"PATH={CLUSTER_TOOLS}:/usr/sbin:/usr/bin:/sbin:/bin"
                self.machine.spawn(name, ("/usr/bin/env", path, program, "--config", str(files.containerd())))
                self._until(name, lambda: "Server" in self.ctr("version", check=False))
                self._import(image_archive(), "busybox")
            case "kubelet":
                (self.machine.folder / "kubernetes" / Path(MANIFESTS).name).mkdir(exist_ok=True)
                named = (f"--hostname-override={self.machine.name}", f"--node-ip={self.machine.address}")
                config = f"--kubeconfig={files.kubeconfig(node_user(self.machine))}"
                self.machine.spawn(name, (program, f"--config={files.kubelet()}", config, *named))
            case _:
                self.machine.spawn(name, (program, f"--config={files.proxy()}"))

    def ctr(self, *words: str, check: bool = True) -> str:
        """Run containerd's `ctr` in the namespace of Kubernetes."""
        return self.machine.run(
            str(CLUSTER_TOOLS / "ctr"), "-a", CONTAINERD_SOCKET, "-n", "k8s.io", *words, check=check
        )

    def _import(self, archive: bytes, name: str) -> None:
        file = self.machine.folder / f"{name}.tar"
        file.write_bytes(archive)
        self.ctr("images", "import", str(file))

    def _until(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait; fail at once with the end of its log if a program of the node has ended."""
        started = set(self.machine.running()) | {what}

        def require_running() -> None:
            ended = started - set(self.machine.running()) - {"Node"}
            assert not ended, "".join(f"{name} ended: {log_tail(self.machine.log(name))}" for name in ended)

        until_blocking(condition, f"{what} is ready", seconds=START_SECONDS, every=0.1, check=require_running)

    # 3. Koordstream

    def load_images(self) -> None:
        """Build the images that are missing, and import all of them."""
        self.ctr("images", "import", str(images.archive()))

    def install(self) -> None:
        """Install Koordstream as its guide says, on volumes of the node, and wait until every workload is available."""
        volumes = self.machine.folder / "volumes"
        for claim in CLAIMS:
            folder = volumes / claim
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o777)  # fsGroup does nothing for hostPath
        self.plane.apply(*(_volume(claim, volumes / claim) for claim in CLAIMS))
        self.plane.kubectl("apply", "-k", "k8s/overlays/dev")
        self.plane.kubectl("create", "-f", "k8s/configuration.yaml")
        self.wait_available()

    def wait_available(self) -> None:
        """Wait until every workload of Koordstream is available."""
        for namespace in (SYSTEM, NODES):
            for kind in ("statefulset", "deployment", "daemonset"):
                for name in self.plane.kubectl("get", kind, "-n", namespace, "-o", "name").split():
                    self.plane.kubectl("rollout", "status", name, "-n", namespace, "--timeout=240s")


def _rights() -> list[Json]:
    """Rights of the API server at kubelets, and of CoreDNS."""
    lists = {"apiGroups": ["", "discovery.k8s.io"], "verbs": ["list", "watch"]}
    lists["resources"] = ["endpoints", "endpointslices", "services", "pods", "namespaces"]
    role = {"kind": "ClusterRole", "metadata": {"name": DNS}, "rules": [lists]}
    bound = {"koord-client": "system:kubelet-api-admin", DNS: DNS}
    group = "rbac.authorization.k8s.io"
    bindings = [
        {
            "kind": "ClusterRoleBinding",
            "metadata": {"name": f"cluster-{user}"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        }
        for user, name in bound.items()
    ]
    return [{"apiVersion": f"{group}/v1", **document} for document in (role, *bindings)]


def _dns(address: str) -> list[Json]:
    """The Service of CoreDNS, which leads to the node."""
    meta = {"name": "kube-dns", "namespace": "kube-system"}
    ports = [{"name": name.lower(), "port": 53, "protocol": name} for name in ("UDP", "TCP")]
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"clusterIP": SERVICE_DNS, "ports": ports}},
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {**meta, "labels": {"kubernetes.io/service-name": "kube-dns"}},
            "addressType": "IPv4",
            "ports": ports,
            "endpoints": [{"addresses": [address]}],
        },
    ]


def _volume(claim: str, folder: Path) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": claim},
        "spec": {
            "capacity": {"storage": "100Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": SYSTEM, "name": claim},
            "hostPath": {"path": str(folder)},
        },
    }
