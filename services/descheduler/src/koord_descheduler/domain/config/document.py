"""DeschedulerConfiguration as users write it. Unknown fields are errors.

Source:
    descheduler spec, 3.1, 3.2 (1)
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final

from koordcore.protocol.component_config import NotNegative, Number, SignedDuration, Text, WireModel
from koordcore.values.invalid import InvalidInput
from pydantic import AfterValidator, StrictBool, StrictInt

from koord_descheduler.domain.config.arguments import LabelSelectorArgs
from koord_descheduler.domain.framework.plugin import Point

API_VERSION: Final = "descheduler/v1alpha2"
KIND: Final = "DeschedulerConfiguration"
ALL: Final = "*"


def _exactly(wanted: str) -> AfterValidator:
    def check(text: str) -> str:
        if text != wanted:
            raise InvalidInput(wanted, text)
        return text

    return AfterValidator(check)


class LeaderElection(WireModel):
    """Leader election of the process. Times are in seconds. `resource_...` is accepted without effect."""

    leader_elect: StrictBool = True
    lease_duration: SignedDuration = 15.0
    renew_deadline: SignedDuration = 10.0
    retry_period: SignedDuration = 2.0
    resource_lock: Text = "leases"
    resource_name: Text = "koord-descheduler"
    resource_namespace: Text = "koordinator-system"


class ClientConnection(WireModel):
    """Connection to the API server: accepted without effect, because the log is read. "" or 0: the default."""

    kubeconfig: Text = ""
    content_type: Text = ""
    accept_content_types: Text = ""
    qps: Number = 0
    burst: StrictInt = 0


class PluginName(WireModel):
    name: Text


class PluginSet(WireModel):
    """Plugins that a profile enables and disables at one extension point; `*` disables all default plugins."""

    enabled: tuple[PluginName, ...] = ()
    disabled: tuple[PluginName, ...] = ()


class Plugins(WireModel):
    deschedule: PluginSet = PluginSet()
    balance: PluginSet = PluginSet()
    evict: PluginSet = PluginSet()
    filter: PluginSet = PluginSet()

    def at(self, point: Point) -> PluginSet:
        found: PluginSet = getattr(self, point.value)
        return found


class PluginArguments(WireModel):
    """Name of a plugin, and its arguments as the user wrote them; None if the entry has no arguments."""

    name: Text
    args: Mapping[Text, Any] | None = None


class ProfileConfiguration(WireModel):
    """`prove` does not exist in Koordinator: a pod is moved only if that makes the cluster better, by the scheduler's
    placement.
    """

    name: Text = ""
    prove: StrictBool = False
    node_selector: LabelSelectorArgs | None = None
    plugins: Plugins = Plugins()
    plugin_config: tuple[PluginArguments, ...] = ()


class DeschedulerConfiguration(WireModel):
    api_version: Annotated[Text, _exactly(API_VERSION)]
    kind: Annotated[Text, _exactly(KIND)]
    leader_election: LeaderElection = LeaderElection()
    client_connection: ClientConnection = ClientConnection()
    enable_profiling: StrictBool = True
    enable_contention_profiling: StrictBool | None = None  # None: the value of `enable_profiling`
    healthz_bind_address: Text = ""  # Host and port; "": the default. The same holds for `metrics_bind_address`.
    metrics_bind_address: Text = ""
    # Seconds from the start of a round to the start of the next; 0: one round per term.
    descheduling_interval: SignedDuration = 0.0
    dry_run: StrictBool = False  # Whether evictions are counted and not carried out
    node_selector: LabelSelectorArgs | None = None  # Nodes of the rounds; None: all
    # Limit of one round; None: no limit. The two limits after it are alike.
    max_no_of_pods_to_evict_per_node: NotNegative | None = None
    max_no_of_pods_to_evict_per_namespace: NotNegative | None = None
    max_no_of_pods_to_evict_total: NotNegative | None = None
    profiles: tuple[ProfileConfiguration, ...] = ()  # The profiles; empty: one default profile
