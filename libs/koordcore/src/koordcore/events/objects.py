"""Mirrored API objects: copies of the objects in the API server, or from `koord apply`. Writer: the leading manager.

Aggregates: `podspec.<uid>`, `nodespec.<name>`, `namespace.<name>`, `priorityclass.<name>`, `workloadspec.<uid>`,
`config.<ns=name>`. Objects are reduced to the fields that Koordstream reads (`koordcore.protocol.objects`).

Custom resources: `customspec.<plural>=<name>`, namespaced `customspec.<plural>=<ns>=<name>`. They are mirrored as the
API server stores them, without unknown fields and with defaults. A reader decodes the fields that it needs when it
folds the event. `customspec.scales=<ns>=<uid of a controller of pods>` is the Scale of a controller that is not
mirrored itself: its metadata with the controller as owner, and `spec.replicas`.

Source: event-bus spec, 2.1; protocol spec, 9.
"""

from typing import Any, Final

from koordcore.events.envelope import AggregateRef, Event, name_token
from koordcore.events.registry import CATALOGUE
from koordcore.protocol.objects import ConfigMap, Namespace, Node, Pod, PriorityClass, Workload


@CATALOGUE.register(kind="podspec")
class PodSpecAdded(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A pod was created in the API server or by `koord apply`, and was admitted."""

    object: Pod  # Metadata, spec and status of the pod, reduced to the fields that Koordstream reads


@CATALOGUE.register(kind="podspec")
class PodSpecChanged(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A field of the pod changed that Koordstream reads, in metadata, spec or status."""

    object: Pod  # The whole pod after the change, reduced to the fields that Koordstream reads


@CATALOGUE.register(kind="podspec")
class PodSpecDeleted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The pod was deleted in the API server or by `koord apply`. Its placement is then released."""

    namespace: str
    name: str


@CATALOGUE.register(kind="nodespec")
class NodeSpecAdded(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A node was added to the cluster."""

    # Metadata, spec and status of the Node object, reduced to the fields that Koordstream reads: labels, annotations,
    # taints, allocatable resources ...
    object: Node


@CATALOGUE.register(kind="nodespec")
class NodeSpecChanged(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A field of the Node object changed that Koordstream reads."""

    object: Node  # The whole Node object after the change, reduced to the fields that Koordstream reads


@CATALOGUE.register(kind="nodespec")
class NodeSpecDeleted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The Node object was deleted in the API server or by `koord apply`."""

    name: str


@CATALOGUE.register(kind="namespace")
class NamespaceObserved(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A namespace was added, or its labels or annotations changed."""

    object: Namespace  # The whole Namespace object, reduced to the fields that Koordstream reads


@CATALOGUE.register(kind="namespace")
class NamespaceDeleted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The Namespace object was deleted. Its pods are deleted by their own events."""

    name: str


@CATALOGUE.register(kind="priorityclass")
class PriorityClassObserved(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A PriorityClass (scheduling.k8s.io) was added or changed."""

    object: PriorityClass  # The whole PriorityClass object, reduced to the fields that Koordstream reads


@CATALOGUE.register(kind="priorityclass")
class PriorityClassDeleted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The PriorityClass object was deleted. Pods that exist keep their priority."""

    name: str


@CATALOGUE.register(kind="workloadspec")
class WorkloadObserved(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A Deployment or Job was added or changed by `koord apply`. Its pods follow as `PodSpecAdded`."""

    object: Workload  # The whole object, reduced to the fields that Koordstream reads


@CATALOGUE.register(kind="workloadspec")
class WorkloadPodsCreated(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Pods of a Deployment or Job were created. Their `PodSpecAdded` are in the same atomic batch.

    If two writers create pods for one workload at the same time, the log refuses the second batch because of this
    event.
    """

    pods: list[str]  # Uids of the pods. They are computed from the sequence of the workload's previous event.


@CATALOGUE.register(kind="workloadspec")
class WorkloadDeleted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A Deployment or Job was deleted by `koord apply`. Its pods are deleted by their own events."""

    namespace: str
    name: str


@CATALOGUE.register(kind="config")
class ConfigAccepted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A ConfigMap was added or changed, and every section of it is valid. It is the configuration in force from now on.

    Sections are checked in ConfigMaps of the kind `slo-controller-config`. Data of other ConfigMaps is free text.
    """

    object: ConfigMap  # The ConfigMap with its data


@CATALOGUE.register(kind="config")
class ConfigRejected(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A section of a ConfigMap in the API server is invalid. The last accepted version stays in force."""

    namespace: str
    name: str
    data: dict[str, str]  # Key -> rejected text
    reasons: dict[str, str]  # Key -> one sentence with field, rule and value


@CATALOGUE.register(kind="config")
class ConfigDeleted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A ConfigMap was deleted. Its readers use their defaults."""

    namespace: str
    name: str


SCALES: Final = "scales"  # Plural name in the ids of Scales


@CATALOGUE.register(kind="customspec")
class CustomObjectObserved(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A custom resource was added or changed in the API server or by `koord apply`."""

    object: dict[str, Any]  # The whole object as JSON, after pruning and defaulting, without `managedFields`


@CATALOGUE.register(kind="customspec")
class CustomObjectDeleted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A custom resource was deleted. Another object with its name may follow; it then has another uid."""

    kind: str  # Kind of the object, for example "ElasticQuota"
    namespace: str = ""  # "" for cluster-scoped kinds
    name: str


def custom_ref(plural: str, namespace: str, name: str) -> AggregateRef:
    """Return the aggregate of a custom resource: `customspec.<plural>=<namespace>=<name>`.

    Args:
        plural: Plural name of the kind, for example "elasticquotas".
        namespace: "" for cluster-scoped kinds; the id then has no namespace.
    """
    parts = (plural, namespace, name) if namespace else (plural, name)
    return AggregateRef("customspec", "=".join(name_token(part) for part in parts))


def plural_of(ref_id: str) -> str:
    """Return the plural of the kind (for example "elasticquotas") from the id of an aggregate `customspec`."""
    return ref_id.partition("=")[0]
