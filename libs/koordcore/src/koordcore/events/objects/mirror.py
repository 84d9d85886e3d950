"""Mirrored API objects: what the API server (or `koord apply`) says. Writer: the ingester (manager, leader).

Aggregates: `podspec.<uid>`, `nodespec.<name>`, `namespace.<name>`, `priorityclass.<name>`, `workloadspec.<uid>`,
`config.<ns=name>`. The object is cut down to the fields that we use (`koordcore.protocol.objects`).

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
    """A field that we use changed; `object` is the whole new subset."""

    object: Pod


@CATALOGUE.register(kind="podspec")
class PodSpecDeleted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The pod is gone from the API; what it held is to be released."""

    namespace: str
    name: str


@CATALOGUE.register(kind="nodespec")
class NodeSpecAdded(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A node registered."""

    object: Node


@CATALOGUE.register(kind="nodespec")
class NodeSpecChanged(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A field that we use changed; `object` is the whole new subset."""

    object: Node


@CATALOGUE.register(kind="nodespec")
class NodeSpecDeleted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The node is gone from the API."""

    name: str


@CATALOGUE.register(kind="namespace")
class NamespaceObserved(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A namespace was added or changed."""

    object: Namespace


@CATALOGUE.register(kind="namespace")
class NamespaceDeleted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A namespace is gone."""

    name: str


@CATALOGUE.register(kind="priorityclass")
class PriorityClassObserved(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A priority class was added or changed."""

    object: PriorityClass


@CATALOGUE.register(kind="priorityclass")
class PriorityClassDeleted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A priority class is gone."""

    name: str


@CATALOGUE.register(kind="workloadspec")
class WorkloadObserved(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A Deployment or Job was added or changed; its pods follow as `PodSpecAdded`."""

    object: Workload


@CATALOGUE.register(kind="workloadspec")
class WorkloadPodsCreated(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Pods were created for a workload, in the same batch. Of two that look at once, the second is refused here.

    Attributes:
        pods: Their uids, which follow from the workload's last sequence before this event.
    """

    pods: list[str]


@CATALOGUE.register(kind="workloadspec")
class WorkloadDeleted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A workload is gone; its pods are deleted by their own events."""

    namespace: str
    name: str


@CATALOGUE.register(kind="config")
class ConfigAccepted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A ConfigMap was accepted; every section of it is valid (for the slo-controller-config) or free text."""

    object: ConfigMap


@CATALOGUE.register(kind="config")
class ConfigRejected(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A ConfigMap was stored by the user, but a section of it is invalid: the last good version stays in force.

    Attributes:
        data: The offending text per key.
        reasons: Key -> field, rule and value in one sentence.
    """

    namespace: str
    name: str
    data: dict[str, str]
    reasons: dict[str, str]


@CATALOGUE.register(kind="config")
class ConfigDeleted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A ConfigMap is gone."""

    namespace: str
    name: str
