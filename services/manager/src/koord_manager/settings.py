"""What the manager can be told, besides what every service can be told."""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from koordcore.service.configuration.gates import Gate, Stage
from koordcore.service.configuration.settings import Flag, Seconds, TextList
from pydantic import Field, field_validator

from koord_manager.domain.admission.context.facts import ENHANCED_NAME, ENHANCED_NAMESPACE, ConfigNames
from koord_manager.domain.admission.options import GATE_DEFAULTS, BindingPolicy, Options
from koord_manager.domain.config_checks.slo_config import SLO_CONFIG_NAME, SLO_CONFIG_NAMESPACE
from koord_manager.domain.enabled import CONTROLLERS, PLUGINS
from koord_manager.domain.profile_controller import ControllerPolicy
from koord_manager.domain.recommender.settings import RecommenderSettings, read_settings
from koord_manager.kubernetes_settings import KubernetesSettings


class ManagerSettings(KubernetesSettings):
    """Settings of `koord-manager`."""

    service: ClassVar[str] = "manager"
    about: ClassVar[str] = (
        "Admits and mirrors objects, turns usage reports into batch resources, renders each node's policy. Several may "
        "run; one leads."
    )
    known_gates: ClassVar[Sequence[Gate]] = tuple(
        Gate(name, default, Stage.BETA if default else Stage.ALPHA) for name, default in GATE_DEFAULTS.items()
    )

    control_interval: Seconds = Field(0.5, gt=0, description="Pause between control rounds, in the host's time.")
    desired_interval: Seconds = Field(
        5.0, ge=0, description="How long changes of a node's desired state are gathered before they are written again."
    )

    controllers: TextList = Field(
        CONTROLLERS, description="Controllers that run; -NAME switches one off, * stands for all others."
    )
    noderesource_plugins: TextList = Field(
        PLUGINS, description="What is computed of a node; -NAME switches one off, * stands for all others."
    )
    config_namespace: str = Field(SLO_CONFIG_NAMESPACE, description="Namespace of the configuration ConfigMap.")
    slo_config_name: str = Field(SLO_CONFIG_NAME, description="Name of the configuration ConfigMap.")
    node_strategy_name_need_check: bool = Field(
        False, description="Entries of the configuration must have unique, non-empty names."
    )
    enhanced_config_namespace: Annotated[str, Flag("pod-enhanced-validator-config-namespace")] = Field(
        ENHANCED_NAMESPACE, description="Namespace of the ConfigMap with labels that pods must have."
    )
    enhanced_config_name: Annotated[str, Flag("pod-enhanced-validator-config-name")] = Field(
        ENHANCED_NAME, description="Name of the ConfigMap with labels that pods must have."
    )
    webhooks: Literal["auto", "on", "off"] = Field(
        "auto", description="Serve admission webhooks over TLS; auto: when there is an API server to be called by."
    )
    webhook_address: str = Field("0.0.0.0", description="Address that the webhooks are served on.")  # noqa: S104
    quota_update_max_retries: int = Field(3, ge=0, description="Retries of a quota's account after conflicts.")
    quota_update_retry_jitter: Seconds = Field(0.0, ge=0, description="Pause before each such retry, at most.")
    quota_update_max_total_jitter: Seconds = Field(1.0, ge=0, description="All such pauses of one batch together.")
    quota_update_conflict_fresh_get: bool = Field(
        False, description="Accepted; after a conflict the account is always read from the API server again."
    )
    pod_enhanced_validator_config_reconcile_interval: Seconds = Field(
        300.0, ge=0, description="Accepted; the rules follow their ConfigMap as it changes."
    )
    colocation_profile_reconcile_by_default: bool = Field(
        False, description="The profile controller handles every profile, not only those that are labelled so."
    )
    colocation_profile_reconcile_interval: Seconds = Field(30.0, gt=0, description="Time between its rounds.")
    colocation_profile_force_update_pod_duration: Seconds = Field(
        300.0, ge=0, description="After so long a profile is put on a waiting pod again."
    )
    colocation_profile_expire_pod_cache_duration: Seconds = Field(
        600.0, ge=0, description="How long it remembers what it has done."
    )
    colocation_profile_update_pod_qps: float = Field(10.0, ge=0, description="Pods that it changes in a second.")
    colocation_profile_update_pod_qps_burst: int = Field(100, ge=1, description="Pods that it changes at once.")
    binding_admission_user_name: TextList = Field(
        (), description="Parts of the names of users who may bind pods; none: everybody may."
    )
    binding_admission_dry_run: bool = Field(False, description="Count bindings that would be denied, deny none.")
    binding_admission_namespaces: TextList = Field((), description="Namespaces where bindings are judged; *: all.")
    binding_admission_exclude_namespaces: TextList = Field(
        ("kube-system",), description="Namespaces where bindings are never judged."
    )
    binding_admission_bypass_labels: TextList = Field(
        ("koordinator.sh/binding-admission-bypass",), description="Labels of pods that anybody may bind."
    )
    binding_admission_bypass_annotations: TextList = Field((), description="Annotations of pods that anybody may bind.")
    recommended_usage: bool = Field(
        False,
        description="Tell the scheduler, by an annotation on new pods, what these are expected to use (its "
        "recommendedEstimator).",
    )
    recommender_settings: TextList = Field(
        (), description="Settings of the recommender that are not at their defaults, NAME=NUMBER."
    )
    enable_pprof: bool = Field(False, description="Accepted without effect: there is no such profile of this process.")
    pprof_addr: str = Field("", description="Accepted without effect.")
    disable_no_deepcopy: bool = Field(False, description="Accepted without effect.")
    log_verbosity: Annotated[int, Flag("v")] = Field(0, description="Accepted without effect: see --log-level.")
    logtostderr: bool = Field(True, description="Accepted without effect: the log always goes there.")

    @field_validator("recommender_settings", mode="after")
    @classmethod
    def _recommender_settings_are_some(cls, texts: tuple[str, ...]) -> tuple[str, ...]:
        read_settings(",".join(texts))
        return texts


def config_names(settings: ManagerSettings) -> ConfigNames:
    """Which ConfigMaps are ours."""
    return ConfigNames(
        slo_namespace=settings.config_namespace,
        slo_name=settings.slo_config_name,
        enhanced_namespace=settings.enhanced_config_namespace,
        enhanced_name=settings.enhanced_config_name,
    )


def recommender_settings(settings: ManagerSettings) -> RecommenderSettings:
    """How the recommender learns and estimates."""
    return read_settings(",".join(settings.recommender_settings))


def controller_policy(settings: ManagerSettings) -> ControllerPolicy:
    """Flags of the profile controller as one value."""
    return ControllerPolicy(
        by_default=settings.colocation_profile_reconcile_by_default,
        interval=settings.colocation_profile_reconcile_interval,
        force_update=settings.colocation_profile_force_update_pod_duration,
        forget=settings.colocation_profile_expire_pod_cache_duration,
        qps=settings.colocation_profile_update_pod_qps,
        burst=settings.colocation_profile_update_pod_qps_burst,
    )


def admission_options(settings: ManagerSettings) -> Options:
    """Gates and flags of admission as one value."""
    return Options(
        gates=dict(settings.feature_gates.values),
        check_strategy_names=settings.node_strategy_name_need_check,
        recommended_usage=settings.recommended_usage,
        binding=BindingPolicy(
            user_names=settings.binding_admission_user_name,
            dry_run=settings.binding_admission_dry_run,
            namespaces=settings.binding_admission_namespaces,
            exclude_namespaces=settings.binding_admission_exclude_namespaces,
            bypass_labels=settings.binding_admission_bypass_labels,
            bypass_annotations=settings.binding_admission_bypass_annotations,
        ),
    )
