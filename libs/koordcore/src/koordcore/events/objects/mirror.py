"""Mirrored API objects, as the API server or `koord apply` states them. Writer: the leading manager.

Aggregates: `podspec.<uid>`, `nodespec.<name>`, `namespace.<name>`, `priorityclass.<name>`, `workloadspec.<uid>`,
`config.<ns=name>`. Objects are reduced to the fields that Koordstream reads (`koordcore.protocol.objects`).

Source:
    event-bus spec, 2.1
"""

from koordcore.events.envelope import Event
from koordcore.events.registry import CATALOGUE
from koordcore.protocol.objects import ConfigMap, Namespace, Node, Pod, PriorityClass, Workload


@CATALOGUE.register(kind="podspec")
class PodSpecAdded(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A pod was submitted and admitted."""

    object: Pod


@CATALOGUE.register(kind="podspec")
class PodSpecChanged(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A field that Koordstream reads changed. `object` is the whole reduced object."""

    object: Pod


@CATALOGUE.register(kind="podspec")
class PodSpecDeleted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The pod was deleted in the API. Its resources are released."""

    namespace: str
    name: str


@CATALOGUE.register(kind="nodespec")
class NodeSpecAdded(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A node was added."""

    object: Node


@CATALOGUE.register(kind="nodespec")
class NodeSpecChanged(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A field that Koordstream reads changed. `object` is the whole reduced object."""

    object: Node


@CATALOGUE.register(kind="nodespec")
class NodeSpecDeleted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The node was deleted in the API."""

    name: str


@CATALOGUE.register(kind="namespace")
class NamespaceObserved(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A namespace was added or changed."""

    object: Namespace


@CATALOGUE.register(kind="namespace")
class NamespaceDeleted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A namespace was deleted."""

    name: str


@CATALOGUE.register(kind="priorityclass")
class PriorityClassObserved(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A priority class was added or changed."""

    object: PriorityClass


@CATALOGUE.register(kind="priorityclass")
class PriorityClassDeleted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A priority class was deleted."""

    name: str


@CATALOGUE.register(kind="workloadspec")
class WorkloadObserved(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A Deployment or Job was added or changed. Its pods follow as `PodSpecAdded`."""

    object: Workload


@CATALOGUE.register(kind="workloadspec")
class WorkloadPodsCreated(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Pods were created for a workload, in the same batch. Concurrent creations conflict on this event.

    Attributes:
        pods: Uids of the pods. They are derived from the workload's last sequence before this event.
    """

    pods: list[str]


@CATALOGUE.register(kind="workloadspec")
class WorkloadDeleted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A workload was deleted. Its pods are deleted by their own events."""

    namespace: str
    name: str


@CATALOGUE.register(kind="config")
class ConfigAccepted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A ConfigMap was accepted: every section is valid (slo-controller-config) or free text."""

    object: ConfigMap


@CATALOGUE.register(kind="config")
class ConfigRejected(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A section of a stored ConfigMap is invalid. The last valid version stays in force.

    Attributes:
        data: Key -> rejected text.
        reasons: Key -> field, rule and value in one sentence.
    """

    namespace: str
    name: str
    data: dict[str, str]
    reasons: dict[str, str]


@CATALOGUE.register(kind="config")
class ConfigDeleted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A ConfigMap was deleted."""

    namespace: str
    name: str
