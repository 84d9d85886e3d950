"""One decoded document -> one typed object, or every reason why not.

The shape is defined once, by the structs of `koordcore.protocol.objects`; this module turns a mismatch of shape into
field, rule and value, and hands what has the right shape to `rules`.
"""

import re
from typing import Any, NamedTuple, cast

import msgspec

from koordcore.protocol.manifests import rules
from koordcore.protocol.objects import ConfigMap, Namespace, Node, Pod, PriorityClass, Workload
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

KubeObject = Pod | Node | ConfigMap | Namespace | PriorityClass | Workload

KINDS: dict[tuple[str, str], type[Any]] = {
    ("v1", "Pod"): Pod,
    ("v1", "Node"): Node,
    ("v1", "ConfigMap"): ConfigMap,
    ("v1", "Namespace"): Namespace,
    ("scheduling.k8s.io/v1", "PriorityClass"): PriorityClass,
    ("apps/v1", "Deployment"): Workload,
    ("batch/v1", "Job"): Workload,
}
"""(apiVersion, kind) -> type of the mirrored subset."""

NAMESPACED = {"Pod", "ConfigMap", "Deployment", "Job"}
"""Kinds that live in a namespace ("default" when the manifest names none)."""


class InvalidManifest(Exception):
    """A document that is refused as a whole, with every violation that was found."""

    def __init__(self, violations: list[InvalidInput]) -> None:
        super().__init__("; ".join(violation.sentence() for violation in violations))
        self.violations = violations


class Manifest(NamedTuple):
    """An accepted document: its kind as written and its typed object, namespace filled in."""

    kind: str
    object: KubeObject


def read_manifest(document: object) -> Manifest:
    """The typed object of a document.

    document  JSON value without null entries, as `read_documents` gives it
    raises    InvalidManifest with field, rule and value of every violation
    """
    if not isinstance(document, dict):
        raise InvalidManifest([InvalidInput("an object with apiVersion, kind and metadata", document, "document")])
    entries = cast("dict[str, object]", document)
    api_version, kind = entries.get("apiVersion"), entries.get("kind")
    if not isinstance(api_version, str) or not isinstance(kind, str):
        missing = "kind" if isinstance(api_version, str) else "apiVersion"
        raise InvalidManifest([InvalidInput("text such as v1 / Pod", entries.get(missing), missing)])
    model = KINDS.get((api_version, kind))
    if model is None:
        known = ", ".join(f"{version} {name}" for version, name in KINDS)
        raise InvalidManifest([InvalidInput(f"one of {known}", f"{api_version} {kind}", "apiVersion, kind")])
    shaped = _flattened(kind, entries) if model is Workload else entries
    typed = cast("KubeObject", _shape(shaped, model))
    if kind in NAMESPACED and not typed.metadata.namespace:
        typed.metadata.namespace = "default"
    violations = rules.check(kind, typed)
    if violations:
        raise InvalidManifest(violations)
    return Manifest(kind, typed)


def _flattened(kind: str, entries: dict[str, object]) -> dict[str, object]:
    """A Deployment or Job as our Workload: replicas (Job: parallelism) and template lifted out of spec."""
    spec = entries.get("spec")
    if not isinstance(spec, dict):
        raise InvalidManifest([InvalidInput("an object", spec, "spec")])
    fields = cast("dict[str, object]", spec)
    if "template" not in fields:
        raise InvalidManifest([InvalidInput("a pod template", None, "spec.template")])
    number = fields.get("replicas" if kind == "Deployment" else "parallelism", 1)
    return {
        "kind": kind,
        "apiVersion": entries["apiVersion"],
        "metadata": entries.get("metadata", {}),
        "replicas": number,
        "template": fields["template"],
    }


_MISMATCH = re.compile(r"^(?P<rule>.*?)(?: - at `\$?(?P<path>.*)`)?$", re.DOTALL)


def _shape(value: dict[str, object], model: type[Any]) -> object:
    """The struct of a JSON object. Raises InvalidManifest naming the path, what was expected, and the value there."""
    try:
        return codec.convert(value, model)
    except (msgspec.ValidationError, RecursionError, OverflowError) as error:
        match = _MISMATCH.match(str(error))
        assert match is not None
        path = (match["path"] or "").lstrip(".")
        if "[...]" in path:
            # msgspec does not say which entry of a map it was; the map itself is named instead
            path = path.split("[...]", 1)[0]
        rule = match["rule"].removeprefix("Expected ").replace("`", "")
        raise InvalidManifest([InvalidInput(rule, _value_at(value, path), path)]) from error


_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")


def _value_at(value: object, path: str) -> object:
    """What stands at `a.b[0].c`; None when the path does not lead anywhere."""
    for name, index in _STEP.findall(path):
        if index and isinstance(value, list):
            items = cast("list[object]", value)
            value = items[int(index)] if int(index) < len(items) else None
        elif isinstance(value, dict):
            value = cast("dict[str, object]", value).get(name)
        else:
            return None
    return value
