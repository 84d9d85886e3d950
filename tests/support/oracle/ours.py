"""A case as our scheduler sees it: which plugins refuse each node, and the scores, by the scheduler's own filters."""

from typing import Any, NamedTuple

import numpy as np
from koord_scheduler.domain.framework.outcomes import Rejection
from koordcore.events.envelope import BasedOn, name_token
from koordcore.events.objects import NamespaceObserved
from koordcore.protocol.objects import Namespace, node_from_json, object_from_json, pod_from_json
from support.oracle.lines import Document
from support.scheduler.scheduling import Scheduler, SmallLog
from support.scheduler.volumes import say

DEFAULT_PLUGINS = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - schedulerName: default-scheduler
"""
"""A profile with the default plugins of Kubernetes, and no others."""

OBJECTS = {
    "services": "services",
    "replicaSets": "replicasets",
    "statefulSets": "statefulsets",
    "replicationControllers": "replicationcontrollers",
    "jobs": "jobs",
    "persistentVolumes": "persistentvolumes",
    "persistentVolumeClaims": "persistentvolumeclaims",
    "storageClasses": "storageclasses",
    "csiNodes": "csinodes",
    "csiDrivers": "csidrivers",
    "csiStorageCapacities": "csistoragecapacities",
    "volumeAttachments": "volumeattachments",
}


class Judged(NamedTuple):
    """What our scheduler makes of a pod."""

    refused: dict[str, set[str]]  # Node -> the plugins that refuse it. Nodes without one are feasible.
    feasible: set[str]  # Nodes that the engine says are feasible, by its caches
    scores: dict[str, dict[str, int]]  # Plugin -> node -> normalized score times weight


def scheduler_of(case: Document, running: list[Document]) -> Scheduler:
    """A scheduler that knows the cluster of a case. `running`: its pods, as the API server stored them."""
    scheduler = Scheduler(SmallLog(), DEFAULT_PLUGINS)
    log = scheduler.log
    for document in case.get("namespaces", ()):
        name = document["metadata"]["name"]
        event = NamespaceObserved(object=object_from_json(document, Namespace))
        log.say("namespace", name_token(name), event)
    for field, plural in OBJECTS.items():
        for document in case.get(field, ()):
            say(scheduler, plural, document)
    for document in case["nodes"]:
        log.add_node(node_from_json(document))
    for document in running:
        log.add_pod(pod_from_json(document))
    scheduler.follow()
    return scheduler


def judge(scheduler: Scheduler, document: Document) -> Judged:
    """Filter and score the nodes for a pod, which is forgotten afterwards. Every plugin is asked about every node."""
    pod = pod_from_json(document)
    scheduler.log.add_pod(pod)
    scheduler.follow()
    judged = _judged(scheduler, pod.metadata.uid)
    scheduler.log.remove_pod(pod.metadata.uid)
    scheduler.follow()
    return judged


def _judged(scheduler: Scheduler, uid: str) -> Judged:
    state = scheduler.state
    record, nodes = state.pods[uid], state.nodes
    subject = record.subject
    assert subject is not None, "the pod cannot be read"
    framework = state.frameworks.framework_of(record)
    engine = framework.engine
    state.cluster.settle()
    rows = np.flatnonzero(nodes.alive)
    refused: dict[str, set[str]] = {nodes.names[row]: set() for row in rows}

    def note(plugin: str, codes: Any) -> None:
        for row, code in zip(rows, () if codes is None else codes, strict=codes is not None):
            if code:
                refused[nodes.names[row]].add(plugin)

    answer = framework.pre_filter(record, 0.0)
    if isinstance(answer, Rejection):
        note(answer.plugin, np.ones(len(rows), np.int64))
    else:
        for plugin, candidates in answer:
            names = candidates.names
            outside = [nodes.names[row] in candidates.without for row in rows]
            if names is not None:
                outside = [out or nodes.names[row] not in names for out, row in zip(outside, rows, strict=True)]
            note(plugin, np.array(outside, np.int64))
    before = {name for name, plugins in refused.items() if plugins}
    for _, plugin in engine.answers.asked.of(subject.pod_class).filters:
        note(plugin.name, plugin.filter(subject.pod_class, nodes, rows))
    for name, rule in engine.cross_node_filters(subject).filters:
        note(name, rule.filter(rows))
    fits: list[int] = engine.feasible(subject).tolist()
    feasible = {nodes.names[row] for row in fits} - before
    scores: dict[str, dict[str, int]] = {}
    if not before:
        engine.top_scores = len(rows)
        decision = engine.decide(subject, uid, BasedOn(state.log.position, state.log.observed))
        for top in decision.explanation.top:
            for plugin, score in top.parts.items():
                scores.setdefault(plugin, {})[top.node] = score
    return Judged(refused, feasible, scores)
