"""Objects as users of the reference write them: taken unchanged, with nothing but defaults added."""

from typing import Any, cast

import pytest
import yaml
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.documents.apply import decide_apply
from koordcore.events.envelope import Draft
from koordcore.events.objects import CustomObjectObserved, custom_ref
from koordcore.protocol.manifests import read_documents, shape_manifest
from support.histories.recording import stored as as_stored

Json = dict[str, Any]
MANIFESTS = """
apiVersion: scheduling.koordinator.sh/v1alpha1
kind: Reservation
metadata: {name: reservation-demo}
spec:
  template:
    namespace: default
    spec:
      containers:
      - args: ["-c", "1"]
        command: [stress]
        image: polinux/stress
        imagePullPolicy: Always
        name: stress
        resources: {requests: {cpu: 500m, memory: 800Mi}}
      schedulerName: koord-scheduler
  owners:
  - object: {name: pod-demo-0, namespace: default}
  - labelSelector: {matchLabels: {app: app-demo}}
  - controller: {apiVersion: apps/v1, kind: ReplicaSet, name: rs, uid: u-1, namespace: default}
  ttl: 1h
  allocateOnce: false
---
apiVersion: scheduling.koordinator.sh/v1alpha1
kind: PodMigrationJob
metadata: {name: migrationjob-demo}
spec:
  paused: false
  ttl: 5m
  mode: ReservationFirst
  podRef: {namespace: default, name: pod-demo-5f9b977566-c7lvk}
  reservationOptions:
    reservationRef: {name: reservation-0}
---
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: ElasticQuota
metadata:
  name: quota-example
  namespace: default
  labels:
    quota.scheduling.koordinator.sh/parent: ""
    quota.scheduling.koordinator.sh/is-parent: "false"
spec:
  max: {cpu: 40, memory: 40Gi}
  min: {cpu: 10, memory: 20Mi}
---
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: PodGroup
metadata: {name: gang-example, namespace: default}
spec: {scheduleTimeoutSeconds: 100, minMember: 2}
---
apiVersion: quota.koordinator.sh/v1alpha1
kind: ElasticQuotaProfile
metadata: {name: node-pool-profile, namespace: kube-system}
spec:
  quotaName: node-pool-root-quota
  quotaLabels: {quota.scheduling.koordinator.sh/is-parent: "true"}
  resourceRatio: "0.9"
  nodeSelector: {matchLabels: {node-pool: a}}
---
apiVersion: scheduling.koordinator.sh/v1alpha1
kind: Device
metadata: {name: worker01, labels: {node.koordinator.sh/gpu-model: NVIDIA-H20}}
spec:
  devices:
  - health: true
    id: GPU-a43e0de9-28a0-1e87-32f8-f5c4994b3e69
    minor: 0
    topology: {busID: "0000:0e:00.0", nodeID: 0, pcieID: "pci0000:0b", socketID: -1}
    type: gpu
    resources:
      koordinator.sh/gpu-core: "100"
      koordinator.sh/gpu-memory: 97871Mi
      koordinator.sh/gpu-memory-ratio: "100"
  - {health: true, id: "0000:1f:00.2", minor: 2, type: rdma, resources: {koordinator.sh/rdma: 100}}
---
apiVersion: slo.koordinator.sh/v1alpha1
kind: NodeSLO
metadata: {name: test-node}
spec:
  cpuBurstStrategy: {cfsQuotaBurstPercent: 300, cfsQuotaBurstPeriodSeconds: -1, cpuBurstPercent: 1000, policy: none}
  extensions: {anything: {goes: [1, two]}}
  resourceUsedThresholdWithBE:
    {cpuSuppressPolicy: cpuset, cpuSuppressThresholdPercent: 65, enable: true, memoryEvictThresholdPercent: 70}
  systemStrategy: {minFreeKbytesFactor: 100, watermarkScaleFactor: 150}
---
apiVersion: analysis.koordinator.sh/v1alpha1
kind: Recommendation
metadata: {name: recommendation-example, namespace: default}
spec:
  target: {type: workload, workload: {apiVersion: apps/v1, kind: Deployment, name: nginx}}
---
apiVersion: config.koordinator.sh/v1alpha1
kind: ClusterColocationProfile
metadata:
  name: colocation-profile-example
  annotations: {config.koordinator.sh/skip-update-resources: "true"}
  labels: {config.koordinator.sh/controller-managed: "true"}
spec:
  namespaceSelector: {matchLabels: {koordinator.sh/enable-colocation: "true"}}
  selector: {matchExpressions: [{key: app, operator: In, values: [spark]}]}
  probability: 50%
  qosClass: BE
  priorityClassName: koord-batch
  koordinatorPriority: 1000
  schedulerName: koord-scheduler
  labels: {koordinator.sh/mutated: "true"}
  annotations: {koordinator.sh/intercepted: "true"}
  labelKeysMapping: {a: b}
  annotationKeysMapping: {c: d}
  labelSuffixes: {app: -be}
  patch: {spec: {terminationGracePeriodSeconds: 30}, metadata: {labels: {gone: null}}}
---
apiVersion: topology.node.k8s.io/v1alpha1
kind: NodeResourceTopology
metadata: {name: node-1, annotations: {node.koordinator.sh/cpu-basic-info: '{"cpuModel":"X"}'}}
topologyPolicies: ["SingleNUMANodePodLevel"]
zones:
- name: node-0
  type: Node
  resources:
  - {name: cpu, capacity: "20", allocatable: "20", available: "20"}
"""
DOCUMENTS = [cast("Json", document) for document in read_documents(MANIFESTS.encode())]


def stored(document: Json) -> Json:
    applied = decide_apply(ManagerView(), shape_manifest(document), new_uid="u", now="2026-01-01T00:00:00Z")
    assert applied.action == "created"
    event = applied.drafts[0].event
    assert isinstance(event, CustomObjectObserved)
    return event.object


def assert_within(written: Any, kept: Any, path: str = "") -> None:
    """Every field that was written is there, with its value."""
    if isinstance(written, dict):
        for name, value in cast("Json", written).items():
            assert name in kept, f"{path}.{name} was dropped"
            assert_within(value, kept[name], f"{path}.{name}")
    elif isinstance(written, list):
        assert len(cast("list[Any]", written)) == len(kept), path
        for index, (one, other) in enumerate(zip(cast("list[Any]", written), kept, strict=True)):
            assert_within(one, other, f"{path}[{index}]")
    else:
        assert written == kept, path


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document["kind"])
def test_a_users_object_is_stored_with_every_field_it_has(document: Json) -> None:
    kept = stored(document)
    if document["kind"] == "ElasticQuota":  # an empty parent label becomes the root quota (manager spec, 13.1)
        document = yaml.safe_load(yaml.safe_dump(document))
        document["metadata"]["labels"].pop("quota.scheduling.koordinator.sh/parent")
    if document["kind"] == "Reservation":  # of its template what is kept of pods
        document = yaml.safe_load(yaml.safe_dump(document))
        template = document["spec"]["template"]
        template.pop("namespace")
        (container,) = template["spec"]["containers"]
        for name in ("command", "args", "imagePullPolicy"):
            container.pop(name)

    assert_within(document, kept)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document["kind"])
def test_applying_it_again_changes_nothing(document: Json) -> None:
    view = ManagerView()
    first = decide_apply(view, shape_manifest(document), new_uid="u", now="2026-01-01T00:00:00Z")
    view.fold(as_stored(1, first.drafts[0]))

    again = decide_apply(view, shape_manifest(document), new_uid="other", now="2027-01-01T00:00:00Z")

    assert (again.action, again.drafts) == ("unchanged", [])


def test_what_a_manifest_no_longer_says_is_removed_and_what_others_wrote_stays() -> None:
    quota = next(document for document in DOCUMENTS if document["kind"] == "ElasticQuota")
    view = ManagerView()
    first = decide_apply(view, shape_manifest(quota), new_uid="u", now="2026-01-01T00:00:00Z")
    view.fold(as_stored(1, first.drafts[0]))
    event = first.drafts[0].event
    assert isinstance(event, CustomObjectObserved)
    annotated = yaml.safe_load(yaml.safe_dump(event.object))
    annotated["metadata"]["annotations"]["quota.scheduling.koordinator.sh/runtime"] = '{"cpu":1}'
    ref = custom_ref("elasticquotas", "default", "quota-example")
    view.fold(as_stored(2, Draft(ref, CustomObjectObserved(object=annotated), 1)))

    changed = yaml.safe_load(yaml.safe_dump(quota))
    del changed["spec"]["min"]["memory"]
    applied = decide_apply(view, shape_manifest(changed), new_uid="x", now="2027-01-01T00:00:00Z")

    assert applied.action == "configured"
    after = applied.drafts[0].event
    assert isinstance(after, CustomObjectObserved)
    assert after.object["spec"]["min"] == {"cpu": 10}
    assert after.object["metadata"]["annotations"]["quota.scheduling.koordinator.sh/runtime"] == '{"cpu":1}'
    assert (after.object["metadata"]["uid"], after.object["metadata"]["generation"]) == ("u", 2)
