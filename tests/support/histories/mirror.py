"""Steps of the objects that the manager mirrors from Kubernetes, other than pods."""

from koordcore.events.envelope import name_token, namespaced_token
from koordcore.events.nodepolicy import ConfigWarned
from koordcore.events.objects import (
    ConfigAccepted,
    ConfigDeleted,
    ConfigRejected,
    CustomObjectDeleted,
    CustomObjectObserved,
    NamespaceDeleted,
    NamespaceObserved,
    NodeSpecAdded,
    NodeSpecChanged,
    NodeSpecDeleted,
    PriorityClassDeleted,
    PriorityClassObserved,
    WorkloadDeleted,
    WorkloadObserved,
    WorkloadPodsCreated,
    custom_ref,
)
from koordcore.protocol.objects import ConfigMap, Namespace, ObjectMeta, PodTemplate, PriorityClass, Workload
from koordcore.state.aggregates import NodeSpecState, WorkloadState
from support.histories.actions import Action
from support.histories.objects import NODES, node, pod
from support.histories.recording import Recorder


def step_mirror(log: Recorder, action: Action) -> None:
    """Write the facts of a step of a mirrored object."""
    what, number, variation = action
    uid = f"uid-{number}"
    name = NODES[number % len(NODES)]
    token, nodes = name_token(name), log.state.of_kind(NodeSpecState)
    exists = token in nodes
    config = ConfigMap(
        metadata=ObjectMeta(name="slo-controller-config", namespace="koordinator-system"), data={"k": str(variation)}
    )
    config_id = namespaced_token("koordinator-system", "slo-controller-config")
    match what:
        case "add-node" if not exists:
            log.write("nodespec", token, NodeSpecAdded(object=node(name, 4 * (variation + 1))))
        case "change-node" if exists:
            log.write("nodespec", token, NodeSpecChanged(object=node(name, 8, unschedulable=variation % 2 == 0)))
        case "delete-node" if exists:
            log.write("nodespec", token, NodeSpecDeleted(name=name))
        case "namespace":
            meta = ObjectMeta(name=f"ns-{number}", labels={"v": str(variation)})
            log.write("namespace", f"ns-{number}", NamespaceObserved(object=Namespace(metadata=meta)))
        case "no-namespace":
            log.write("namespace", f"ns-{number}", NamespaceDeleted(name=f"ns-{number}"))
        case "class":
            priority_class = PriorityClass(metadata=ObjectMeta(name=f"class-{number}"), value=9000 + variation)
            log.write("priorityclass", f"class-{number}", PriorityClassObserved(object=priority_class))
        case "no-class":
            log.write("priorityclass", f"class-{number}", PriorityClassDeleted(name=f"class-{number}"))
        case "workload":
            meta = ObjectMeta(name=f"web-{number}", namespace="default", uid=f"w-{number}")
            template = PodTemplate(spec=pod(0).spec)
            workload = Workload(
                kind="Deployment", api_version="apps/v1", metadata=meta, replicas=variation, template=template
            )
            log.write("workloadspec", f"w-{number}", WorkloadObserved(object=workload))
        case "scale" if f"w-{number}" in log.state.of_kind(WorkloadState):
            log.write("workloadspec", f"w-{number}", WorkloadPodsCreated(pods=[uid]))
        case "no-workload":
            log.write("workloadspec", f"w-{number}", WorkloadDeleted(namespace="default", name=f"web-{number}"))
        case "config":
            log.write("config", config_id, ConfigAccepted(object=config))
            warned = ConfigWarned(namespace="koordinator-system", name="slo-controller-config", warnings={"a": "b"})
            log.write("config", config_id, warned)
        case "bad-config":
            meta = config.metadata
            rejected = ConfigRejected(
                namespace=meta.namespace, name=meta.name, data={"k": "{"}, reasons={"k": "must be JSON, got '{'"}
            )
            log.write("config", config_id, rejected)
        case "no-config":
            log.write("config", config_id, ConfigDeleted(namespace="koordinator-system", name="slo-controller-config"))
        case "custom":
            quota = {
                "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
                "kind": "ElasticQuota",
                "metadata": {"name": f"q-{number}", "namespace": "default"},
                "spec": {"max": {"cpu": variation}},
            }
            ref = custom_ref("elasticquotas", "default", f"q-{number}")
            log.write(ref.kind, ref.id, CustomObjectObserved(object=quota))
        case "no-custom":
            ref = custom_ref("elasticquotas", "default", f"q-{number}")
            gone_quota = CustomObjectDeleted(kind="ElasticQuota", namespace="default", name=f"q-{number}")
            log.write(ref.kind, ref.id, gone_quota)
        case _:
            pass  # a step of another module, or not possible in the present state: no event
