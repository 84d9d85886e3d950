"""Settings of the gateway to Kubernetes, with the names and defaults of Koordinator where it has them.

Source:
    manager spec, 2.1, 2.2; protocol spec, 11.1
"""

from pathlib import Path
from typing import Annotated

from koordcore.service.bus import ElectedSettings
from koordcore.service.settings import Seconds
from pydantic import BeforeValidator, Field

LEASE_NAME = "koordinator-manager"


class KubernetesSettings(ElectedSettings):
    """Settings of the gateway to Kubernetes. The gateway runs only if `gateway` or a kubeconfig is set."""

    gateway: bool = Field(
        False, description="Mirror an API server and write decisions back, as the service account of the pod."
    )
    kubeconfig: Path | None = Field(None, description="Kubeconfig of the API server; switches the gateway on.")
    kube_context: str = Field("", description="Context of the kubeconfig; empty for the current one.")
    rest_config_qps: float = Field(
        30.0,
        description="Requests per second to the API server; 0 or less for no limit. Events have the same limit again.",
    )
    rest_config_burst: int = Field(50, ge=1, description="Burst of requests beyond that rate.")
    leader_election_namespace: str = Field("koordinator-system", description="Namespace of the Lease.")
    metrics_addr: str = Field(
        "auto", description="Additional address of metrics, host:port; auto: :8080 with --gateway; 0: none."
    )
    health_probe_addr: str = Field(
        "auto", description="Additional address of health, host:port; auto: :8000 with --gateway; 0: none."
    )
    namespace: str = Field("", description="Watch namespaced objects in this namespace only; empty for all.")
    sync_period: Annotated[Seconds, BeforeValidator(lambda text: text or 0)] = Field(
        0.0, ge=0, description="Time between full lists; 0 or empty: only if a watch is too old."
    )
    watch_timeout: Seconds = Field(300.0, gt=0, description="Minimum time that the API server keeps a watch open.")
    watch_idle: Seconds = Field(150.0, gt=0, description="Time after which a silent watch is opened again.")
    sweep_period: Seconds = Field(
        600.0, ge=0, description="Time between comparisons of fold and API server; 0 for none."
    )
    take_node_metrics: bool = Field(
        False, description="Read NodeMetric status from a stock node agent instead of writing it from our reports."
    )
    write_node_status: bool = Field(True, description="Write extended resources, annotations and labels of nodes.")
    write_node_slo: bool = Field(True, description="Write NodeSLO objects.")
    write_node_metric: bool = Field(True, description="Write NodeMetric objects (the measuring policy of the agent).")
    write_object_status: bool = Field(
        True,
        description="Write the status of PodGroups, ElasticQuotas and Recommendations, and the quotas of profiles.",
    )
    write_node_metric_status: bool = Field(False, description="Write reports of our agents as NodeMetric status.")

    @property
    def further_ports(self) -> dict[str, str]:
        """Purpose ("metrics", "health") -> address of Koordinator's additional ports; "" or "0" stands for no port."""
        given = {"metrics": (self.metrics_addr, ":8080"), "health": (self.health_probe_addr, ":8000")}
        return {
            purpose: (default if self.gateway else "") if address == "auto" else address
            for purpose, (address, default) in given.items()
        }

    @property
    def with_kubernetes(self) -> bool:
        """Whether the gateway runs."""
        return self.gateway or self.kubeconfig is not None
