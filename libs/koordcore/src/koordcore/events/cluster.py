"""What schedulers learn about the cluster as a whole: network domains of its nodes, and its typical pods.

Aggregates: `clustertopology.default`, `gpuworkload.default`. Writer: schedulers.

Source: scheduler-core spec, 9; protocol spec, 9.8; gpu-fragmentation spec, 3 and 6.
"""

import msgspec

from koordcore.events.envelope import Event
from koordcore.events.registry import CATALOGUE


class TopologyDomain(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One network domain, for example a rack: a group of nodes on one layer of the network topology."""

    layer: str  # Name of its layer; the whole cluster is a domain too
    name: str = ""  # Name of the domain; "" for the whole cluster
    parent_layer: str = ""  # Layer of the domain above; "" for the whole cluster
    parent_name: str = ""  # Name of the domain above; "" if that is the whole cluster or there is none
    child_layer: str = ""  # Layer of the domains or nodes below
    children: list[str] = []  # Names of the domains below, sorted; empty if nodes are below
    nodes: int = 0  # Number of nodes in it


@CATALOGUE.register(kind="clustertopology")
class ClusterTopologyComputed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The network domains of the cluster changed, which `status.detailStatus` of the ClusterNetworkTopology shows."""

    name: str  # Name of the ClusterNetworkTopology
    domains: list[TopologyDomain] = []  # All domains, parents before children, children by name


class TypicalPod(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One combination of requests that many pods have, and how frequent it is."""

    milli_cpu: int  # Requested milli-cores
    gpu_milli: int = 0  # Requested thousandths of each GPU; 1000 is a whole GPU
    num_gpu: int = 0  # Number of GPUs; 0: the pods use none
    gpu_models: str = ""  # Allowed GPU models, joined by "|"; empty: any
    frequency: float = 0.0  # Part of all typical pods, 0..1


@CATALOGUE.register(kind="gpuworkload")
class TypicalPodsLearned(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The scheduler learned the typical pods of the cluster. It measures GPU fragmentation with them from now on."""

    pods: int  # Number of pods that were created in the window
    window_seconds: int  # Length of the window
    typical_pods: list[TypicalPod] = []  # Combinations of requests, most frequent first
