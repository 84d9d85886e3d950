"""CustomResourceDefinitions for tests, of kinds that Koordstream does not know."""

from typing import Any

DATABASES = "databases.example.org"
"""API group of controllers of pods, the kind `Database`, whose number of replicas is `spec.instances`."""
SCALES_RIGHT = {"apiGroups": [DATABASES], "resources": ["databases/scale"], "verbs": ["get"]}


def definition(
    plural: str, kind: str, version: str, *, group: str = "apps.kruise.io", **subresources: Any
) -> dict[str, Any]:
    """Return a CustomResourceDefinition that keeps every field."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": subresources,
                },
            ],
        },
    }


def databases() -> dict[str, Any]:
    """Return the definition of `Database`, which has a scale."""
    scale = {"specReplicasPath": ".spec.instances", "statusReplicasPath": ".status.instances"}
    return definition("databases", "Database", "v1", group=DATABASES, scale=scale)


def database(name: str, instances: int, kind: str = "Database") -> dict[str, Any]:
    """Return a controller of pods."""
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": f"{DATABASES}/v1", "kind": kind, "metadata": meta, "spec": {"instances": instances}}


def reference_to(stored: dict[str, Any]) -> dict[str, Any]:
    """Return the owner reference of a pod that an object of the API server controls."""
    named = {"name": stored["metadata"]["name"], "uid": stored["metadata"]["uid"]}
    return {"apiVersion": stored["apiVersion"], "kind": stored["kind"], **named, "controller": True}
