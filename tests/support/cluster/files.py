"""Configuration of a node's programs: tokens, kubeconfigs, containerd with NRI, CNI, kubelet, kube-proxy, CoreDNS."""

import json
import secrets
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml
from koordcore.bus.setup.tls_files import TlsFiles
from koordctl.stack.containers import IMAGE
from koordctl.stack.kubernetes.api import Access, write_kubeconfig, write_secret
from koordctl.stack.kubernetes.control_plane import KUBELETS
from koordctl.stack.kubernetes.programs import ADMIN
from support.cluster.machine import POD_NETWORK, Machine
from support.cluster.node_init import PROC_STAT

SERVICE_DNS: Final = "10.0.0.10"
PORT: Final = 6443
SCHEDULER: Final = "system:kube-scheduler"
PROXY: Final = "system:kube-proxy"
DNS: Final = "koord-dns"
CONTAINERD_SOCKET: Final = "/run/containerd/containerd.sock"
MANIFESTS: Final = "/etc/kubernetes/manifests"


def node_user(machine: Machine) -> str:
    """User name of a kubelet."""
    return f"system:node:{machine.name}"


def write_tokens(file: Path, machines: tuple[Machine, ...]) -> None:
    """Write the tokens of all users, unless the file exists."""
    if file.exists():
        return
    users = {ADMIN: "system:masters", "system:kube-controller-manager": "", KUBELETS: "", SCHEDULER: "", PROXY: ""}
    users |= {DNS: "", **{node_user(machine): "system:nodes" for machine in machines}}
    write_secret(
        file, "".join(f'{secrets.token_urlsafe(32)},{user},{user},"{group}"\n' for user, group in users.items())
    )


@dataclass(frozen=True)
class NodeFiles:
    """Files of one node.

    Attributes:
        machine: The node.
        tls: Files of the cluster's authority; its certificate names all nodes.
        url: URL of the API server that nodes use.
        tokens: User -> bearer token.
        programs: Folder of the CNI plugins and containerd.
    """

    machine: Machine
    tls: TlsFiles
    url: str
    tokens: dict[str, str]
    programs: Path

    def kubeconfig(self, user: str) -> Path:
        """Write the kubeconfig of a user."""
        access = Access(url=self.url, ca=self.tls.ca.read_text(encoding="ascii"), token=self.tokens[user])
        return write_kubeconfig(self.machine.folder / f"{user.replace(':', '-')}.kubeconfig", user, access)

    def _write(self, name: str, text: str) -> Path:
        file = self.machine.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def containerd(self) -> Path:
        """Write the configuration of containerd 2, with NRI, and of its network."""
        bridge = {
            "type": "bridge",
            "bridge": "koordpods0",
            "isGateway": True,
            "ipMasq": True,
            "hairpinMode": True,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": self.machine.pod_range}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }
        network = {
            "cniVersion": "1.0.0",
            "name": "koordcluster",
            "plugins": [bridge, {"type": "portmap", "capabilities": {"portMappings": True}}],
        }
        self._write("cni/net.d/10-koordcluster.conflist", json.dumps(network))
        return self._write(
            "containerd.toml",
            f"""\
version = 3
[grpc]
  address = "{CONTAINERD_SOCKET}"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "{IMAGE}"
[plugins.'io.containerd.cri.v1.runtime']
  # The machines of tests may lack SYS_RESOURCE, without which oom_score_adj cannot be lowered.
  restrict_oom_score_adj = true
  disable_apparmor = true
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  base_runtime_spec = "{self._base_spec()}"
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["{self.programs / "cni"}"]
  conf_dir = "/etc/cni/net.d"
[plugins.'io.containerd.nri.v1.nri']
  disable = false
""",
        )

    def _base_spec(self) -> Path:
        """Write what every container begins with: containerd's default, and the node's own /proc/stat."""
        words = (str(self.programs / "ctr"), "oci", "spec")
        document = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
        own = {"destination": "/proc/stat", "type": "bind", "source": str(PROC_STAT), "options": ["bind", "ro"]}
        document["mounts"].append(own)
        return self._write("base-spec.json", json.dumps(document))

    def kubelet(self) -> Path:
        """Write the configuration of the kubelet."""
        document = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "failCgroupV1": False,
            "failSwapOn": False,
            "cgroupDriver": "cgroupfs",
            "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(self.tls.ca)},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(self.tls.server_certificate),
            "tlsPrivateKeyFile": str(self.tls.server_key),
            "clusterDNS": [SERVICE_DNS],
            "clusterDomain": "cluster.local",
            "resolvConf": "",
            "staticPodPath": MANIFESTS,
            "nodeStatusUpdateFrequency": "5s",
            # The disk of this machine is not the node's own.
            "evictionHard": {"memory.available": "200Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "imageGCHighThresholdPercent": 100,
        }
        return self._write("kubelet.yaml", yaml.safe_dump(document))

    def proxy(self) -> Path:
        """Write the configuration of kube-proxy. Limits of connections belong to the whole machine: they stay."""
        document = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "iptables",
            "clusterCIDR": POD_NETWORK,
            "hostnameOverride": self.machine.name,
            "clientConnection": {"kubeconfig": str(self.kubeconfig(PROXY))},
            "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        }
        return self._write("kube-proxy.yaml", yaml.safe_dump(document))

    def dns(self) -> Path:
        """Write the configuration of CoreDNS, which runs on the node and not in a pod."""
        return self._write(
            "Corefile",
            f""".:53 {{
    bind {self.machine.address}
    errors
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {self.kubeconfig(DNS)}
        pods insecure
    }}
    cache 5
}}
""",
        )
