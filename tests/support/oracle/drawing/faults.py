"""Doubtful parts of pods: most of them are refused by an API server, some are accepted to one's surprise."""

from typing import Any, Final, NamedTuple

from support.oracle.drawing.constraints import PREFERRED, REQUIRED
from support.oracle.lines import Document


class Fault(NamedTuple):
    """What replaces fields of a part of a pod: `metadata`, `spec`, the first `container`, or an `init` container."""

    part: str
    fields: dict[str, Any]


def put(pod: Document, fault: Fault) -> None:
    """Put a doubtful part into a pod, which is changed."""
    spec = pod["spec"]
    if fault.part == "init":
        init = {"name": "doubtful", "image": "i", **fault.fields}
        spec["initContainers"] = [*spec.get("initContainers", []), init]
    else:
        parts = {"metadata": pod["metadata"], "spec": spec, "container": spec["containers"][0]}
        parts[fault.part].update(fault.fields)


def _spread(**fields: Any) -> Fault:
    constraint: Document = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {},
    }
    kept = {key: value for key, value in {**constraint, **fields}.items() if value is not None}
    return Fault("spec", {"topologySpreadConstraints": [kept]})


def _node(*expressions: Any, fields: Any = None, required: bool = True) -> Fault:
    term: Document = {"matchExpressions": [*expressions]} if expressions else {}
    if fields is not None:
        term["matchFields"] = fields
    affinity = {REQUIRED: {"nodeSelectorTerms": [term]}}
    if not required:
        affinity = {PREFERRED: [{"weight": 1, "preference": term}]}
    return Fault("spec", {"affinity": {"nodeAffinity": affinity}})


def _expression(operator: str, *values: str, key: str = "disk") -> Document:
    return {"key": key, "operator": operator, **({"values": [*values]} if values else {})}


def _pods(side: str = "podAffinity", weight: int | None = None, **fields: Any) -> Fault:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}, **fields}
    term = {key: value for key, value in term.items() if value is not None}
    terms: Document = {REQUIRED: [term]}
    if weight is not None:
        terms = {PREFERRED: [{"weight": weight, "podAffinityTerm": term}]}
    return Fault("spec", {"affinity": {side: terms}})


def _tolerates(**fields: Any) -> Fault:
    return Fault("spec", {"tolerations": [fields]})


def _port(*, host_network: bool = False, **fields: Any) -> Fault:
    ports = [{"containerPort": 80, **fields}]
    if not host_network:
        return Fault("container", {"ports": ports})
    return Fault("spec", {"hostNetwork": True, "containers": [{"name": "c", "image": "i", "ports": ports}]})


def _resources(part: str = "container", **fields: Any) -> Fault:
    return Fault(part, {"resources": fields})


def _own(containers: Document, **fields: Any) -> Fault:
    """Pod-level resources beside a container with these resources."""
    return Fault("spec", {"resources": fields, "containers": [{"name": "c", "image": "i", "resources": containers}]})


FAULTS: Final = {
    "nothing": Fault("spec", {}),
    # Metadata
    "name in capitals": Fault("metadata", {"name": "Web"}),
    "name of two labels": Fault("metadata", {"name": "a.b"}),
    "name with a slash": Fault("metadata", {"name": "a/b"}),
    "name of 253": Fault("metadata", {"name": "a" * 253}),
    "name of 254": Fault("metadata", {"name": "a" * 254}),
    "label value of 64": Fault("metadata", {"labels": {"a": "x" * 64}}),
    "label value with a dash at the end": Fault("metadata", {"labels": {"a": "x-"}}),
    "label key with two slashes": Fault("metadata", {"labels": {"a/b/c": "x"}}),
    "label prefix in capitals": Fault("metadata", {"labels": {"Example.com/c": "x"}}),
    "annotation key with a space": Fault("metadata", {"annotations": {"a b": "x"}}),
    "annotation key in capitals": Fault("metadata", {"annotations": {"Example.com/A": "x"}}),
    "two controllers": Fault(
        "metadata",
        {
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": kind, "name": "a", "uid": kind, "controller": True}
                for kind in ("ReplicaSet", "StatefulSet")
            ]
        },
    ),
    # Spread
    "maxSkew 0": _spread(maxSkew=0),
    "maxSkew -1": _spread(maxSkew=-1),
    "maxSkew absent": _spread(maxSkew=None),
    "topologyKey absent": _spread(topologyKey=None),
    "topologyKey empty": _spread(topologyKey=""),
    "topologyKey with a space": _spread(topologyKey="a b"),
    "whenUnsatisfiable absent": _spread(whenUnsatisfiable=None),
    "whenUnsatisfiable unknown": _spread(whenUnsatisfiable="Never"),
    "minDomains 0": _spread(minDomains=0),
    "minDomains with ScheduleAnyway": _spread(minDomains=2, whenUnsatisfiable="ScheduleAnyway"),
    "policy unknown": _spread(nodeTaintsPolicy="Maybe"),
    "spread selector with unknown operator": _spread(labelSelector={"matchExpressions": [_expression("Gt", "1")]}),
    "spread selector In without values": _spread(labelSelector={"matchExpressions": [_expression("In")]}),
    "spread selector Exists with values": _spread(labelSelector={"matchExpressions": [_expression("Exists", "a")]}),
    "spread selector with invalid value": _spread(labelSelector={"matchLabels": {"a": "-"}}),
    "spread without selector": _spread(labelSelector=None),
    "matchLabelKeys without selector": _spread(labelSelector=None, matchLabelKeys=["app"]),
    "matchLabelKeys in the selector": _spread(labelSelector={"matchLabels": {"app": "x"}}, matchLabelKeys=["app"]),
    "matchLabelKeys invalid": _spread(matchLabelKeys=["a b"]),
    "matchLabelKeys of no label": _spread(matchLabelKeys=["absent"]),
    "two constraints of one kind": Fault(
        "spec", {"topologySpreadConstraints": [_spread().fields["topologySpreadConstraints"][0]] * 2}
    ),
    # Node affinity and selectors
    "nodeSelector with invalid value": Fault("spec", {"nodeSelector": {"a": "x y"}}),
    "nodeSelector with invalid key": Fault("spec", {"nodeSelector": {"a b": "x"}}),
    "no terms": Fault("spec", {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}}),
    "empty term": _node(),
    "In without values": _node(_expression("In")),
    "NotIn without values": _node(_expression("NotIn")),
    "Exists with values": _node(_expression("Exists", "a")),
    "Gt of two": _node(_expression("Gt", "1", "2")),
    "Gt of no number": _node(_expression("Gt", "a")),
    "Gt of a fraction": _node(_expression("Gt", "1.5")),
    "Gt of a negative number": _node(_expression("Gt", "-1")),
    "preferred Gt of a negative number": _node(_expression("Gt", "-1"), required=False),
    "operator unknown": _node(_expression("Has", "a")),
    "operator in small letters": _node(_expression("in", "a")),
    "expression key invalid": _node(_expression("Exists", key="a b")),
    "expression key empty": _node(_expression("Exists", key="")),
    "value of a label invalid": _node(_expression("In", "a b")),
    "preferred value of a label invalid": _node(_expression("In", "a b"), required=False),
    "field unknown": _node(fields=[_expression("In", "n0", key="metadata.uid")]),
    "field Exists": _node(fields=[_expression("Exists", key="metadata.name")]),
    "field In two": _node(fields=[_expression("In", "n0", "n1", key="metadata.name")]),
    "field name invalid": _node(fields=[_expression("In", "N_0", key="metadata.name")]),
    "weight of a node 0": Fault("spec", {"affinity": {"nodeAffinity": {PREFERRED: [{"weight": 0, "preference": {}}]}}}),
    "weight of a node 101": Fault(
        "spec", {"affinity": {"nodeAffinity": {PREFERRED: [{"weight": 101, "preference": {}}]}}}
    ),
    "preferred empty term": Fault(
        "spec", {"affinity": {"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": {}}]}}}
    ),
    # Inter-pod affinity
    "pod topologyKey empty": _pods(topologyKey=""),
    "pod topologyKey invalid": _pods(topologyKey="a b"),
    "anti-affinity topologyKey absent": _pods("podAntiAffinity", topologyKey=None),
    "pod weight 0": _pods(weight=0),
    "pod weight 101": _pods("podAntiAffinity", weight=101),
    "pod selector invalid": _pods(labelSelector={"matchLabels": {"a b": "x"}}),
    "pod selector absent": _pods(labelSelector=None),
    "pod namespace invalid": _pods(namespaces=["A"]),
    "namespaceSelector invalid": _pods(namespaceSelector={"matchExpressions": [_expression("In")]}),
    "pod matchLabelKeys without selector": _pods(labelSelector=None, matchLabelKeys=["tier"]),
    "pod matchLabelKeys in the selector": _pods(matchLabelKeys=["app"]),
    "pod mismatchLabelKeys in the selector": _pods(mismatchLabelKeys=["app"]),
    "pod key in both lists": _pods(matchLabelKeys=["tier"], mismatchLabelKeys=["tier"]),
    # Tolerations
    "toleration Exists with value": _tolerates(key="a", operator="Exists", value="x"),
    "toleration without key": _tolerates(operator="Equal", value="x"),
    "toleration of everything": _tolerates(operator="Exists"),
    "toleration empty": _tolerates(),
    "toleration key invalid": _tolerates(key="a b", operator="Exists"),
    "toleration value invalid": _tolerates(key="a", value="x y"),
    "toleration operator unknown": _tolerates(key="a", operator="In", value="x"),
    "toleration Gt": _tolerates(key="a", operator="Gt", value="1"),
    "toleration effect unknown": _tolerates(key="a", operator="Exists", effect="Never"),
    "toleration seconds without NoExecute": _tolerates(
        key="a", operator="Exists", effect="NoSchedule", tolerationSeconds=1
    ),
    "toleration seconds of every effect": _tolerates(key="a", operator="Exists", tolerationSeconds=1),
    # Gates, node, policies
    "gates twice": Fault("spec", {"schedulingGates": [{"name": "a"}, {"name": "a"}]}),
    "gate invalid": Fault("spec", {"schedulingGates": [{"name": "a b"}]}),
    "gate empty": Fault("spec", {"schedulingGates": [{"name": ""}]}),
    "gate and node": Fault("spec", {"schedulingGates": [{"name": "a"}], "nodeName": "n0"}),
    "node name invalid": Fault("spec", {"nodeName": "N_0"}),
    "scheduler name invalid": Fault("spec", {"schedulerName": "A b"}),
    "restart policy unknown": Fault("spec", {"restartPolicy": "Sometimes"}),
    "grace period negative": Fault("spec", {"terminationGracePeriodSeconds": -1}),
    "deadline 0": Fault("spec", {"activeDeadlineSeconds": 0}),
    "preemption policy unknown": Fault("spec", {"preemptionPolicy": "Sometimes"}),
    "overhead": Fault("spec", {"overhead": {"cpu": "100m"}}),
    "overhead negative": Fault("spec", {"overhead": {"cpu": "-1"}}),
    "overhead of an unknown resource": Fault("spec", {"overhead": {"gpu": "1"}}),
    # Containers
    "no container": Fault("spec", {"containers": []}),
    "two containers of one name": Fault("spec", {"containers": [{"name": "c", "image": "i"}] * 2}),
    "container and init container of one name": Fault("init", {"name": "c0"}),
    "container name in capitals": Fault("container", {"name": "Web"}),
    "container name of 64": Fault("container", {"name": "a" * 64}),
    "container without name": Fault("container", {"name": ""}),
    "container without image": Fault("container", {"image": ""}),
    "image with a space": Fault("container", {"image": " i"}),
    "sidecar": Fault("init", {"restartPolicy": "Always"}),
    "init container OnFailure": Fault("init", {"restartPolicy": "OnFailure"}),
    "init container restart policy unknown": Fault("init", {"restartPolicy": "Sometimes"}),
    "container restart policy": Fault("container", {"restartPolicy": "Never"}),
    "container restart policy unknown": Fault("container", {"restartPolicy": "Sometimes"}),
    "volume twice": Fault("spec", {"volumes": [{"name": "a", "emptyDir": {}}] * 2}),
    "volume name invalid": Fault("spec", {"volumes": [{"name": "A", "emptyDir": {}}]}),
    "claim without name": Fault("spec", {"volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": ""}}]}),
    "mount of no volume": Fault("container", {"volumeMounts": [{"name": "none", "mountPath": "/a"}]}),
    # Ports
    "port 0": _port(containerPort=0),
    "port 65536": _port(containerPort=65536),
    "host port 65536": _port(hostPort=65536),
    "host port negative": _port(hostPort=-1),
    "protocol unknown": _port(protocol="ICMP"),
    "protocol in small letters": _port(protocol="tcp"),
    "host address invalid": _port(hostPort=80, hostIP="a"),
    "host address with leading zeros": _port(hostPort=80, hostIP="010.0.0.1"),
    "port name in capitals": _port(name="WEB"),
    "port name of 16": _port(name="a" * 16),
    "port name of digits": _port(name="80"),
    "host port twice": Fault("container", {"ports": [{"containerPort": port, "hostPort": 99} for port in (80, 81)]}),
    "port name twice": Fault("container", {"ports": [{"containerPort": port, "name": "a"} for port in (80, 81)]}),
    "port twice": Fault("container", {"ports": [{"containerPort": 80}] * 2}),
    "host network": _port(host_network=True),
    "host network with another host port": _port(host_network=True, hostPort=81),
    # Resources
    "request above limit": _resources(requests={"cpu": "2"}, limits={"cpu": "1"}),
    "request negative": _resources(requests={"cpu": "-1"}),
    "limit negative": _resources(limits={"memory": "-1"}),
    "request of no number": _resources(requests={"cpu": "1C"}),
    "request finer than a milli-core": _resources(requests={"cpu": "0.1m"}),
    "memory finer than a byte": _resources(requests={"memory": "100m"}),
    "request of an unknown resource": _resources(requests={"gpu": "1"}),
    "request of a resource of kubernetes.io": _resources(requests={"kubernetes.io/gpu": "1"}),
    "request of a resource in capitals": _resources(limits={"Example.com/gpu": "1"}),
    "request of a resource named requests": _resources(limits={"requests.example.com/gpu": "1"}),
    "extended request without limit": _resources(requests={"example.com/gpu": "1"}),
    "extended request below limit": _resources(requests={"example.com/gpu": "1"}, limits={"example.com/gpu": "2"}),
    "extended half": _resources(limits={"example.com/gpu": "500m"}),
    "hugepages alone": _resources(limits={"hugepages-2Mi": "2Mi"}),
    "hugepages request below limit": _resources(
        requests={"cpu": "1", "hugepages-2Mi": "2Mi"}, limits={"hugepages-2Mi": "4Mi"}
    ),
    "hugepages of no page": _resources(requests={"cpu": "1"}, limits={"hugepages-2Mi": "3Mi"}),
    "hugepages of no size": _resources(requests={"cpu": "1"}, limits={"hugepages-": "2Mi"}),
    "storage": _resources(requests={"storage": "1Gi"}),
    "pods": _resources(requests={"pods": "1"}),
    "init container's request above limit": _resources("init", requests={"cpu": "2"}, limits={"cpu": "1"}),
    "pod-level request below that of containers": _own({"requests": {"cpu": "2"}}, requests={"cpu": "1"}),
    "pod-level limit below that of a container": _own({"limits": {"cpu": "2"}}, limits={"cpu": "1"}),
    "pod-level limit below the sum of requests": _own({"requests": {"cpu": "2"}}, limits={"cpu": "1"}),
    "pod-level request above limit": _own({}, requests={"cpu": "2"}, limits={"cpu": "1"}),
    "pod-level extended resource": _own({}, limits={"example.com/gpu": "1"}),
    "pod-level ephemeral storage": _own({}, requests={"ephemeral-storage": "1"}),
    "pod-level negative": _own({}, requests={"cpu": "-1"}),
    "pod-level hugepages alone": _own({}, limits={"hugepages-2Mi": "2Mi"}),
    "pod-level limit only": _own({"requests": {"memory": "1Gi"}}, limits={"cpu": "2"}),
}
