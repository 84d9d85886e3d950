"""Random clusters and pods in the words of the API, drawn so that a good part fits barely.

Few labels, few amounts and few ports: what is drawn meets what was drawn before.
"""

from random import Random
from typing import Any

from support.oracle.program import Document

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
KEYS = (ZONE, HOST, "disk", "rack")
CPUS = ("100m", "250m", "500m", "1", "1500m", "2", "0", "0.1", "1e-1")
MEMORIES = ("64Mi", "256Mi", "1Gi", "1500M", "2Gi", "0", "100e6")
EXTENDED = "example.com/widget"


class Drawing:
    """Draws one case from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self._count = 0

    def case(self) -> Document:
        """Up to 12 nodes, 24 running pods, and 10 pods to try."""
        random = self.random
        names = [f"n{number}" for number in range(random.randint(1, 12))]
        return {
            "namespaces": [self._namespace(name) for name in ("default", "a", "b")],
            "nodes": [self._node(name) for name in names],
            "running": [self._running(random.choice(names)) for _ in range(random.randint(0, 24))],
            "try": [self.pod() for _ in range(10)],
        }

    def _namespace(self, name: str) -> Document:
        labels = {"kubernetes.io/metadata.name": name, **self._labels(("team",), ("red", "blue"))}
        return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}

    def _is(self, share: float) -> bool:
        return self.random.random() < share

    def _labels(self, keys: tuple[str, ...], values: tuple[str, ...], share: float = 0.7) -> dict[str, str]:
        return {key: self.random.choice(values) for key in keys if self._is(share)}

    def _node(self, name: str) -> Document:
        random = self.random
        labels = {HOST: name, **self._labels((ZONE,), ("a", "b", "c"), 0.85)}
        labels |= self._labels(("disk",), ("ssd", "hdd", "5", "10", "007", "-3"))
        labels |= self._labels(("rack",), ("1", "2", "3"))
        amounts = {
            "cpu": random.choice(("1", "2", "4", "3500m")),
            "memory": random.choice(("1Gi", "2Gi", "4Gi", "3G")),
            "pods": random.choice(("2", "4", "10", "110")),
        }
        if self._is(0.4):
            amounts[EXTENDED] = random.choice(("1", "2", "4"))
        if self._is(0.3):
            amounts["ephemeral-storage"] = random.choice(("1Gi", "4Gi"))
        if self._is(0.2):
            amounts["hugepages-2Mi"] = random.choice(("4Mi", "16Mi"))
        images = [
            {"names": [f"i{number}", f"i{number}:latest"], "sizeBytes": size * 1024 * 1024}
            for number, size in enumerate((10, 200, 900))
            if self._is(0.3)
        ]
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "taints": [self._taint() for _ in range(random.choice((0, 0, 0, 1, 1, 2)))],
                **({"unschedulable": True} if self._is(0.1) else {}),
            },
            "status": {"allocatable": amounts, "capacity": amounts, "images": images},
        }

    def _taint(self) -> Document:
        effect = self.random.choice(("NoSchedule", "PreferNoSchedule", "NoExecute"))
        return {"key": self.random.choice(("t1", "t2")), "value": self.random.choice(("", "x", "5")), "effect": effect}

    def _running(self, node: str) -> Document:
        pod = self.pod()
        pod["spec"]["nodeName"] = node
        pod["spec"].pop("schedulingGates", None)
        pod["status"] = {"phase": self.random.choice(("Running", "Running", "Running", "Pending", "Succeeded"))}
        if self._is(0.1):
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            pod["metadata"]["deletionGracePeriodSeconds"] = 30
        return pod

    def pod(self) -> Document:
        random = self.random
        self._count += 1
        name = f"p{self._count}"
        spec: Document = {"containers": [self._container(f"c{n}") for n in range(random.choice((1, 1, 2)))]}
        if self._is(0.25):
            spec["initContainers"] = [self._init(f"i{n}") for n in range(random.randint(1, 3))]
        if self._is(0.15):
            spec["overhead"] = {"cpu": random.choice(("50m", "250m")), "memory": "64Mi"}
        if self._is(0.15):
            spec["resources"] = self._pod_resources()
        if self._is(0.1):
            spec["hostNetwork"] = True
        if self._is(0.2):
            spec["nodeSelector"] = self._labels(("disk", ZONE, "rack"), ("ssd", "a", "1", "5"), 0.4)
        if self._is(0.5):
            spec["affinity"] = self._affinity()
        if self._is(0.4):
            spec["tolerations"] = [self._toleration() for _ in range(random.randint(1, 3))]
        if self._is(0.35):
            spec["topologySpreadConstraints"] = [self._spread() for _ in range(random.randint(1, 2))]
        if self._is(0.05):
            spec["schedulingGates"] = [{"name": "example.com/gate"}]
        labels = self._labels(("app", "tier"), ("x", "y"), 0.8)
        namespace = random.choice(("default", "default", "a", "b"))
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "uid": name, "labels": labels},
            "spec": spec,
        }

    def _container(self, name: str) -> Document:
        image = self.random.choice(("i0", "i1", "i2:latest", "other"))
        return {"name": name, "image": image, "resources": self._resources(), "ports": self._ports()}

    def _init(self, name: str) -> Document:
        sidecar = {"restartPolicy": "Always"} if self._is(0.5) else {}
        return {**self._container(name), **sidecar}

    def _resources(self) -> Document:
        random = self.random
        found: dict[str, dict[str, str]] = {"requests": {}, "limits": {}}
        for resource, amounts in (("cpu", CPUS), ("memory", MEMORIES)):
            kind = random.choice(("none", "request", "request", "limit", "both"))
            amount = random.choice(amounts)
            if kind in ("request", "both"):
                found["requests"][resource] = amount
            if kind in ("limit", "both"):
                found["limits"][resource] = amount if kind == "limit" or self._is(0.5) else "8Gi"
        if self._is(0.15):
            found["limits"][EXTENDED] = random.choice(("1", "2", "0"))
        if self._is(0.1):
            found["requests"]["ephemeral-storage"] = random.choice(("500Mi", "2Gi"))
        if self._is(0.05):
            found["limits"]["hugepages-2Mi"] = random.choice(("2Mi", "8Mi"))
        return found

    def _pod_resources(self) -> Document:
        found: dict[str, dict[str, str]] = {"requests": {}, "limits": {}}
        if self._is(0.6):
            found["requests"]["cpu"] = self.random.choice(("1", "2", "4"))
        if self._is(0.5):
            found["limits"]["memory"] = self.random.choice(("2Gi", "4Gi"))
        if self._is(0.4):
            found["limits"]["cpu"] = "4"
        return found

    def _ports(self) -> list[Document]:
        random = self.random
        ports: list[Document] = []
        for number in range(random.choice((0, 0, 0, 1, 1))):
            port: Document = {"containerPort": random.choice((80, 81)) + number}
            if self._is(0.6):
                port["hostPort"] = random.choice((80, 81, 8080))
            if self._is(0.3):
                port["hostIP"] = random.choice(("127.0.0.1", "0.0.0.0", "10.0.0.1"))
            if self._is(0.3):
                port["protocol"] = random.choice(("TCP", "UDP"))
            ports.append(port)
        return ports

    def _requirement(self, *, of_node: bool) -> Document:
        random = self.random
        operators = ("In", "NotIn", "Exists", "DoesNotExist", *(("Gt", "Lt") if of_node else ()))
        operator = random.choice(operators)
        key = random.choice(("disk", "rack", ZONE) if of_node else ("app", "tier"))
        values: list[str] = []
        if operator not in ("Exists", "DoesNotExist"):
            pool = ("ssd", "a", "b", "1", "5") if of_node else ("x", "y", "z")
            values = random.sample(pool, random.randint(1, 2))
            if operator in ("Gt", "Lt"):
                values = [random.choice(("5", "7", "-1", "0"))]
        return {"key": key, "operator": operator, **({"values": values} if values else {})}

    def _selector(self) -> Document:
        found: Document = {}
        if self._is(0.8):
            found["matchLabels"] = self._labels(("app", "tier"), ("x", "y"), 0.6)
        if self._is(0.3):
            found["matchExpressions"] = [self._requirement(of_node=False)]
        return found

    def _node_term(self) -> Document:
        term: Document = {}
        if self._is(0.85):
            term["matchExpressions"] = [self._requirement(of_node=True) for _ in range(self.random.randint(1, 2))]
        if self._is(0.2):
            operator = self.random.choice(("In", "NotIn"))
            term["matchFields"] = [{"key": "metadata.name", "operator": operator, "values": ["n1"]}]
        return term

    def _pod_term(self) -> Document:
        random = self.random
        term: Document = {"topologyKey": random.choice(KEYS), "labelSelector": self._selector()}
        if self._is(0.2):
            term["namespaces"] = random.sample(("default", "a", "b"), random.randint(1, 2))
        if self._is(0.2):
            term["namespaceSelector"] = {"matchLabels": self._labels(("team",), ("red", "blue"), 0.7)}
        if self._is(0.1):
            term["matchLabelKeys"] = ["tier"]
        elif self._is(0.1):
            term["mismatchLabelKeys"] = ["tier"]
        return term

    def _affinity(self) -> Document:
        random = self.random
        found: Document = {}
        required, preferred = (
            "requiredDuringSchedulingIgnoredDuringExecution",
            "preferredDuringSchedulingIgnoredDuringExecution",
        )
        if self._is(0.4):
            node: Document = {}
            if self._is(0.5):
                node[required] = {"nodeSelectorTerms": [self._node_term() for _ in range(random.randint(1, 2))]}
            if self._is(0.5):
                node[preferred] = [
                    {"weight": random.randint(1, 100), "preference": self._node_term()} for _ in range(2)
                ]
            found["nodeAffinity"] = node
        for side in ("podAffinity", "podAntiAffinity"):
            if self._is(0.4):
                terms: Document = {}
                if self._is(0.5):
                    terms[required] = [self._pod_term() for _ in range(random.randint(1, 2))]
                if self._is(0.5):
                    weighted = {"weight": random.randint(1, 100), "podAffinityTerm": self._pod_term()}
                    terms[preferred] = [weighted]
                found[side] = terms
        return found

    def _toleration(self) -> Document:
        random = self.random
        found: Document = {}
        if self._is(0.85):
            found["key"] = random.choice(("t1", "t2", "node.kubernetes.io/unschedulable"))
        operator = random.choice((None, "Equal", "Exists"))
        if operator is not None:
            found["operator"] = operator
        if "key" not in found:
            found["operator"] = "Exists"
        if found.get("operator") != "Exists" and self._is(0.7):
            found["value"] = random.choice(("x", "5", ""))
        if self._is(0.6):
            found["effect"] = random.choice(("NoSchedule", "PreferNoSchedule", "NoExecute"))
        return found

    def _spread(self) -> Document:
        random = self.random
        found: dict[str, Any] = {
            "maxSkew": random.choice((1, 1, 2)),
            "topologyKey": random.choice(KEYS),
            "whenUnsatisfiable": random.choice(("DoNotSchedule", "ScheduleAnyway")),
        }
        if self._is(0.9):
            found["labelSelector"] = self._selector()
        if found["whenUnsatisfiable"] == "DoNotSchedule" and self._is(0.2):
            found["minDomains"] = random.randint(1, 4)
        for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if self._is(0.3):
                found[policy] = random.choice(("Honor", "Ignore"))
        if "labelSelector" in found and self._is(0.2):
            found["matchLabelKeys"] = ["tier"]
        return found
