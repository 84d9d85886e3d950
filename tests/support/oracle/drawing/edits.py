"""Changes of stored pods: what an API server allows of them, and what it refuses."""

from collections.abc import Callable
from typing import Any, Final

from support.oracle.drawing.constraints import PREFERRED, REQUIRED
from support.oracle.lines import Document

Edit = Callable[[Document], object]
"""Changes a pod as an API server stores it."""


def _expression(value: str) -> Document:
    return {"key": "disk", "operator": "In", "values": [value]}


def _term(pod: Document) -> Document:
    """The first required term of node affinity, which is made if it is not there."""
    terms = _terms(pod)
    if not terms:
        terms.append({"matchExpressions": [_expression("ssd")]})
    return terms[0]


def _terms(pod: Document) -> list[Document]:
    affinity = pod["spec"].setdefault("affinity", {}).setdefault("nodeAffinity", {})
    return affinity.setdefault(REQUIRED, {}).setdefault("nodeSelectorTerms", [])


def _spec(**fields: Any) -> Edit:
    return lambda pod: pod["spec"].update(fields)


def _container(**fields: Any) -> Edit:
    return lambda pod: pod["spec"]["containers"][0].update(fields)


def _more(field: str, *added: Any) -> Edit:
    return lambda pod: pod["spec"].update({field: [*pod["spec"].get(field, []), *added]})


def _fewer(field: str) -> Edit:
    return lambda pod: pod["spec"].update({field: pod["spec"].get(field, [])[1:]})


EDITS: Final[dict[str, Edit]] = {
    "nothing": lambda _: None,
    "labels": lambda pod: pod["metadata"].update(labels={"new": "label"}),
    "labels that are invalid": lambda pod: pod["metadata"].update(labels={"new": "-"}),
    "annotations": lambda pod: pod["metadata"].update(annotations={"new": "annotation"}),
    "image": _container(image="new"),
    "image of an init container": lambda pod: [
        each.update(image="new") for each in pod["spec"].get("initContainers", [])
    ],
    "image empty": _container(image=""),
    "image with a space": _container(image=" new"),
    "container name": _container(name="new"),
    "requests": _container(resources={"requests": {"cpu": "3"}}),
    "ports": _container(ports=[{"containerPort": 99}]),
    "another container": _more("containers", {"name": "new", "image": "new"}),
    "another init container": _more("initContainers", {"name": "new", "image": "new"}),
    "a toleration more": _more("tolerations", {"key": "new", "operator": "Exists"}),
    "an invalid toleration more": _more("tolerations", {"key": "new", "operator": "Exists", "value": "x"}),
    "a toleration less": _fewer("tolerations"),
    "gates removed": _spec(schedulingGates=[]),
    "one gate removed": _fewer("schedulingGates"),
    "a gate more": _more("schedulingGates", {"name": "new"}),
    "another gate": _spec(schedulingGates=[{"name": "new"}]),
    "node selector more": lambda pod: pod["spec"].setdefault("nodeSelector", {}).update(new="x"),
    "node selector other value": lambda pod: pod["spec"].setdefault("nodeSelector", {}).update(disk="other"),
    "node selector removed": _spec(nodeSelector={}),
    "required expression more": lambda pod: _term(pod).setdefault("matchExpressions", []).append(_expression("new")),
    "required expressions replaced": lambda pod: _term(pod).update(matchExpressions=[_expression("new")]),
    "required field more": lambda pod: _term(pod).update(
        matchFields=[*_term(pod).get("matchFields", []), {"key": "metadata.name", "operator": "In", "values": ["n0"]}]
    ),
    "required term more": lambda pod: _terms(pod).append({"matchExpressions": [_expression("new")]}),
    "required term less": lambda pod: _terms(pod)[:1].clear() if len(_terms(pod)) < 2 else _terms(pod).pop(),
    "preferred replaced": lambda pod: (
        pod["spec"]
        .setdefault("affinity", {})
        .setdefault("nodeAffinity", {})
        .update({PREFERRED: [{"weight": 1, "preference": {"matchExpressions": [_expression("new")]}}]})
    ),
    "affinity removed": lambda pod: pod["spec"].pop("affinity", None),
    "pod affinity": lambda pod: (
        pod["spec"]
        .setdefault("affinity", {})
        .update(podAntiAffinity={REQUIRED: [{"topologyKey": "new", "labelSelector": {}}]})
    ),
    "spread": _spec(topologySpreadConstraints=[]),
    "node": _spec(nodeName="n0"),
    "host network": _spec(hostNetwork=True),
    "scheduler": _spec(schedulerName="other"),
    "priority": _spec(priority=7),
    "overhead": _spec(overhead={"cpu": "1"}),
    "pod-level resources": _spec(resources={"requests": {"cpu": "7"}}),
    "deadline": _spec(activeDeadlineSeconds=60),
    "grace period": _spec(terminationGracePeriodSeconds=7),
    "restart policy": _spec(restartPolicy="Never"),
    "volumes": _more("volumes", {"name": "new", "emptyDir": {}}),
}
