"""Keep the cluster state of admission up to date from the log.

Source:
    manager spec, 13.2 (rules are checked on the observed state); event-bus spec, 2.1
"""

from koordcore.events import objects
from koordcore.events.envelope import AggregateRef, Event
from koordcore.events.objects import CustomObjectDeleted, CustomObjectObserved, plural_of
from koordcore.state import ClusterState, aggregates
from koordcore.values.invalid import InvalidInput

from koord_manager.domain.admission.context.facts import ConfigNames, Facts
from koord_manager.domain.admission.json_object import seen
from koord_manager.domain.admission.request import JsonObject


def facts_of(state: ClusterState, names: ConfigNames) -> Facts:
    """Build the cluster state of admission from a folded state of the log, for example from a snapshot."""
    facts = Facts(names)
    for namespace in state.of_kind(aggregates.NamespaceState).values():
        facts.namespace_observed(namespace.object.metadata.name, namespace.object.metadata.labels)
    for priority_class in state.of_kind(aggregates.PriorityClassState).values():
        facts.priority_class_observed(priority_class.object.metadata.name, priority_class.object)
    for node in state.of_kind(aggregates.NodeSpecState).values():
        facts.node_observed(node.object.metadata.name, node.object.metadata.labels)
    for config in state.of_kind(aggregates.ConfigState).values():
        if config.object is not None:
            meta = config.object.metadata
            facts.config_observed(meta.namespace, meta.name, config.object.data)
    for id_, custom in state.of_kind(aggregates.CustomObjectState).items():
        _observe(facts, id_, custom.object)
    for uid, pod in state.of_kind(aggregates.PodSpecState).items():
        facts.pod_observed(uid, pod.object)
    return facts


def fold_fact(facts: Facts, ref: AggregateRef, event: Event) -> None:
    """Update the cluster state of admission with one event of the log; no-op for kinds of events that it does not read.

    Args:
        facts: Changed in place.
        ref: Aggregate of the event, such as `podspec.<uid>`.
        event: The event.
    """
    match event:
        case objects.PodSpecAdded() | objects.PodSpecChanged():
            facts.pod_observed(ref.id, event.object)
        case objects.PodSpecDeleted():
            facts.pod_gone(ref.id)
        case CustomObjectObserved():
            _observe(facts, ref.id, event.object)
        case CustomObjectDeleted():
            facts.forget(plural_of(ref.id), event.namespace, event.name)
        case objects.NamespaceObserved():
            facts.namespace_observed(event.object.metadata.name, event.object.metadata.labels)
        case objects.NamespaceDeleted():
            facts.namespace_observed(event.name, None)
        case objects.PriorityClassObserved():
            facts.priority_class_observed(event.object.metadata.name, event.object)
        case objects.PriorityClassDeleted():
            facts.priority_class_observed(event.name, None)
        case objects.NodeSpecAdded() | objects.NodeSpecChanged():
            facts.node_observed(event.object.metadata.name, event.object.metadata.labels)
        case objects.NodeSpecDeleted():
            facts.node_observed(event.name, None)
        case objects.ConfigAccepted():
            facts.config_observed(event.object.metadata.namespace, event.object.metadata.name, event.object.data)
        case objects.ConfigDeleted():
            facts.config_observed(event.namespace, event.name, None)
        case _:
            pass


def _observe(facts: Facts, ref_id: str, document: JsonObject) -> None:
    try:
        metadata = seen(document, "metadata")
    except InvalidInput as error:
        facts.unreadable[ref_id] = str(error)
        return
    facts.observe(plural_of(ref_id), str(metadata.get("namespace") or ""), str(metadata.get("name") or ""), document)
