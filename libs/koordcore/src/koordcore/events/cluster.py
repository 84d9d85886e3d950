"""Network domains of the cluster's nodes. Writer: schedulers. Aggregate: `clustertopology.default`.

Typical pods: CPU and GPU requests that many pods of the cluster have. Writer: schedulers.

Aggregate: `gpuworkload.default`.

Source:
    scheduler-core spec, 9; protocol spec, 9.8; gpu-fragmentation spec, 3 and 6
"""

import msgspec

from koordcore.events.envelope import Event
from koordcore.events.registry import CATALOGUE


class TopologyDomain(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One network domain, for example a rack: a group of nodes on one layer of the network topology.

    Attributes:
        layer: Name of its layer; the whole cluster is a domain too.
        name: Name of the domain; "" for the whole cluster.
        parent_layer: Layer of the domain above; "" for the whole cluster.
        parent_name: Name of the domain above; "" if that is the whole cluster or there is none.
        child_layer: Layer of the domains or nodes below.
        children: Names of the domains below, sorted; empty if nodes are below.
        nodes: Number of nodes in it.
    """

    layer: str
    name: str = ""
    parent_layer: str = ""
    parent_name: str = ""
    child_layer: str = ""
    children: list[str] = []
    nodes: int = 0


@CATALOGUE.register(kind="clustertopology")
class ClusterTopologyComputed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The network domains of the cluster changed, which `status.detailStatus` of the ClusterNetworkTopology shows.

    Attributes:
        name: Name of the ClusterNetworkTopology.
        domains: All domains, parents before children, children by name.
    """

    name: str
    domains: list[TopologyDomain] = []


class TypicalPod(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One combination of requests that many pods have, and how frequent it is.

    Attributes:
        milli_cpu: Requested milli-cores.
        gpu_milli: Requested thousandths of each GPU; 1000 is a whole GPU.
        num_gpu: Number of GPUs; 0: the pods use none.
        gpu_models: Allowed GPU models, joined by "|"; empty: any.
        frequency: Part of all typical pods, 0..1.
    """

    milli_cpu: int
    gpu_milli: int = 0
    num_gpu: int = 0
    gpu_models: str = ""
    frequency: float = 0.0


@CATALOGUE.register(kind="gpuworkload")
class TypicalPodsLearned(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The scheduler learned the typical pods of the cluster. It measures GPU fragmentation with them from now on.

    Attributes:
        pods: Number of pods that were created in the window.
        window_seconds: Length of the window.
        typical_pods: Combinations of requests, most frequent first.
    """

    pods: int
    window_seconds: int
    typical_pods: list[TypicalPod] = []
