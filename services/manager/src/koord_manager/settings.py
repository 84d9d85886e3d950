"""Settings of the manager and its gateway, with the names and defaults of Koordinator where it has them.

Source:
    manager spec, 2.1, 2.2; protocol spec, 11.1
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from koordcore.bus.work.node_facts import DEFAULT_QUOTA, NodeQuota
from koordcore.protocol.hardware.device_requests import GPU_TEMPLATES
from koordcore.service.bus import ElectedSettings
from koordcore.service.flags import FlagSpec, Gate, Stage, klog_flags, without_effect
from koordcore.service.settings import Flag, Seconds, TextList
from pydantic import BeforeValidator, Field, field_validator

from koord_manager.domain.admission.config_maps import SLO_CONFIG_NAME, SLO_CONFIG_NAMESPACE
from koord_manager.domain.admission.context.facts import ENHANCED_NAME, ENHANCED_NAMESPACE, ConfigNames
from koord_manager.domain.admission.options import GATE_DEFAULTS, WITHOUT_EFFECT, BindingPolicy, Options
from koord_manager.domain.controller_names import CONTROLLERS, PLUGINS
from koord_manager.domain.controllers.recommender.settings import RecommenderSettings, read_settings
from koord_manager.domain.gateway.change_budget import DEFAULT_BYTES_PER_MINUTE

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
    namespace_bytes_per_minute: int = Field(
        DEFAULT_BYTES_PER_MINUTE,
        ge=1,
        description="Bytes of changes that objects of one namespace may write to the log per minute; eight times as "
        "many at once. Others wait, and the newest version is written.",
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
    write_condition_reasons: bool = Field(
        True,
        description="Write why a pod has no node as reason of PodScheduled; false: always Unschedulable.",
    )
    write_node_metric_status: bool = Field(True, description="Write reports of our agents as NodeMetric status.")

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
        return self.gateway or self.kubeconfig is not None


class ManagerSettings(KubernetesSettings):
    service: ClassVar[str] = "manager"
    folds_cluster: ClassVar[bool] = True
    about: ClassVar[str] = (
        "Admits and mirrors objects, computes batch resources from usage reports, renders the policy of each node. "
        "Several instances may run; one leads."
    )
    known_gates: ClassVar[Sequence[Gate]] = tuple(
        Gate(name, default, Stage.BETA if default else Stage.ALPHA, WITHOUT_EFFECT.get(name, ""))
        for name, default in GATE_DEFAULTS.items()
    )

    control_interval: Seconds = Field(0.5, gt=0, description="Pause between cycles, in the host's time.")
    desired_interval: Seconds = Field(
        5.0,
        ge=0,
        description="Time for which changes of a node's desired state are gathered before it is written again.",
    )

    node_messages_per_minute: int = Field(
        DEFAULT_QUOTA.messages_per_minute,
        ge=1,
        description="Facts that one node may write to the log per minute; five times as many at once.",
    )
    node_bytes_per_minute: int = Field(
        DEFAULT_QUOTA.bytes_per_minute,
        ge=1,
        description="Bytes of facts that one node may write to the log per minute; eight times as many at once.",
    )
    node_bytes_per_day: int = Field(
        DEFAULT_QUOTA.bytes_per_day, ge=1, description="Bytes of facts that one node may write to the log per day."
    )
    controllers: TextList = Field(
        CONTROLLERS, description="Controllers that run; -NAME switches one off, * stands for all others."
    )
    noderesource_plugins: TextList = Field(
        PLUGINS, description="Plugins that compute a node; -NAME switches one off, * stands for all others."
    )
    config_namespace: str = Field(SLO_CONFIG_NAMESPACE, description="Namespace of the configuration ConfigMap.")
    slo_config_name: str = Field(SLO_CONFIG_NAME, description="Name of the configuration ConfigMap.")
    node_strategy_name_need_check: bool = Field(
        False, description="Require unique, non-empty names of configuration entries."
    )
    enhanced_config_namespace: Annotated[str, Flag("pod-enhanced-validator-config-namespace")] = Field(
        ENHANCED_NAMESPACE, description="Namespace of the ConfigMap with labels that pods must have."
    )
    enhanced_config_name: Annotated[str, Flag("pod-enhanced-validator-config-name")] = Field(
        ENHANCED_NAME, description="Name of the ConfigMap with labels that pods must have."
    )
    webhooks: Literal["auto", "on", "off"] = Field(
        "auto", description="Serve admission webhooks over TLS; auto: if there is an API server."
    )
    webhook_address: str = Field("0.0.0.0", description="Address of the webhooks.")  # noqa: S104
    quota_update_max_retries: int = Field(3, ge=0, description="Retries of a write of quota usage after conflicts.")
    quota_update_retry_jitter: Seconds = Field(0.0, ge=0, description="Maximum pause before each such retry.")
    quota_update_max_total_jitter: Seconds = Field(1.0, ge=0, description="Maximum of all such pauses of one batch.")
    colocation_profile_reconcile_by_default: bool = Field(
        False, description="Let the profile controller handle every profile, not only labelled ones."
    )
    colocation_profile_reconcile_interval: Seconds = Field(
        30.0, gt=0, description="Interval of the profile controller."
    )
    colocation_profile_force_update_pod_duration: Seconds = Field(
        300.0, ge=0, description="Time after which a profile is applied to a waiting pod again."
    )
    colocation_profile_expire_pod_cache_duration: Seconds = Field(
        600.0, ge=0, description="Time for which the profile controller remembers its updates."
    )
    colocation_profile_update_pod_qps: float = Field(
        10.0, ge=0, description="Pods that the profile controller updates per second."
    )
    colocation_profile_update_pod_qps_burst: int = Field(
        100, ge=1, description="Burst of updates of the profile controller."
    )
    binding_admission_user_name: TextList = Field(
        (), description="Substrings of the names of users who may bind pods; empty: everybody may."
    )
    binding_admission_dry_run: bool = Field(False, description="Only count bindings that would be denied.")
    binding_admission_namespaces: TextList = Field(
        (), description="Namespaces where bindings are validated; * for all."
    )
    binding_admission_exclude_namespaces: TextList = Field(
        ("kube-system",), description="Namespaces where bindings are never validated."
    )
    binding_admission_bypass_labels: TextList = Field(
        ("koordinator.sh/binding-admission-bypass",), description="Labels of pods that anybody may bind."
    )
    binding_admission_bypass_annotations: TextList = Field((), description="Annotations of pods that anybody may bind.")
    recommended_usage: bool = Field(
        False,
        description="Annotate new pods with their expected usage for the scheduler (its recommendedEstimator).",
    )
    startup_boost: bool = Field(
        False,
        description="Raise the CPU of new pods while they start, as the policies of Recommendations say. It needs "
        "--gateway, because the CPU is taken back in place.",
    )
    recommender_settings: TextList = Field(
        (), description="Settings of the recommender that differ from their defaults, NAME=NUMBER."
    )
    enable_pprof: bool = Field(True, description="Serve profiles and stacks of the process below /debug/pprof/.")

    idle_flags: ClassVar[Sequence[FlagSpec]] = (
        *without_effect(
            "quota-update-conflict-fresh-get",
            "after a conflict, the usage is always read again from the API server",
            is_bool=True,
        ),
        *without_effect("pod-enhanced-validator-reconcile-interval", "the rules follow their ConfigMap at once"),
        *without_effect("leader-elect-resource-lock", "the lock is a Lease, or without --gateway a key of the log"),
        *without_effect("pprof-addr", "the profiles are at the address of --http-host and --http-port"),
        *without_effect("disable-no-deepcopy", "objects are never copied, because nothing changes them", is_bool=True),
        *klog_flags("logs are always written to stderr, one line per event"),
    )

    @field_validator("recommender_settings", mode="after")
    @classmethod
    def _recommender_settings_are_some(cls, texts: tuple[str, ...]) -> tuple[str, ...]:
        read_settings(",".join(texts))
        return texts


def config_names(settings: ManagerSettings) -> ConfigNames:
    return ConfigNames(
        slo_namespace=settings.config_namespace,
        slo_name=settings.slo_config_name,
        enhanced_namespace=settings.enhanced_config_namespace,
        enhanced_name=settings.enhanced_config_name,
    )


def mirrored_configs(settings: ManagerSettings) -> tuple[tuple[str, str], ...]:
    """Return namespace and name of each ConfigMap that the gateway reads, slo-controller-config first.

    The Role of the manager in `k8s/base` names them: a ConfigMap that it may not read stops the gateway.
    """
    names = config_names(settings)
    return (names.slo_namespace, names.slo_name), (names.enhanced_namespace, names.enhanced_name), GPU_TEMPLATES


def recommender_settings(settings: ManagerSettings) -> RecommenderSettings:
    return read_settings(",".join(settings.recommender_settings))


def node_quota(settings: ManagerSettings) -> NodeQuota:
    """Return what one node may write to the log."""
    return NodeQuota(
        messages=5 * settings.node_messages_per_minute,
        messages_per_minute=settings.node_messages_per_minute,
        bytes=8 * settings.node_bytes_per_minute,
        bytes_per_minute=settings.node_bytes_per_minute,
        bytes_per_day=settings.node_bytes_per_day,
    )


def admission_options(settings: ManagerSettings) -> Options:
    return Options(
        gates=dict(settings.feature_gates.values),
        check_strategy_names=settings.node_strategy_name_need_check,
        recommended_usage=settings.recommended_usage,
        startup_boost=settings.startup_boost and settings.gateway,
        binding=BindingPolicy(
            user_names=settings.binding_admission_user_name,
            dry_run=settings.binding_admission_dry_run,
            namespaces=settings.binding_admission_namespaces,
            exclude_namespaces=settings.binding_admission_exclude_namespaces,
            bypass_labels=settings.binding_admission_bypass_labels,
            bypass_annotations=settings.binding_admission_bypass_annotations,
        ),
    )
