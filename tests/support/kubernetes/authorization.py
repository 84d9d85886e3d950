# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# API objects are plain JSON here, as they are on the wire.
"""Bearer tokens and RBAC: whose token it is, and whether the rules of a ClusterRole allow the request."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import yaml

Json = dict[str, Any]
BASE = Path(__file__).parents[3] / "k8s" / "base"


@dataclass(slots=True)
class User:
    """rules: PolicyRules of a ClusterRole, plus namespace -> rules of Roles; None: everything is allowed."""

    name: str
    rules: list[Json] | None = None
    namespaced: dict[str, list[Json]] = field(default_factory=dict[str, list[Json]])

    def may(self, verb: str, group: str, resource: str, namespace: str, name: str) -> bool:
        """Whether a request is allowed; resource with its subresource: `pods/binding`."""
        if self.rules is None:
            return True
        candidates = [*self.rules, *self.namespaced.get(namespace, [])]
        return any(_allows(rule, verb, group, resource, name) for rule in candidates)


def _allows(rule: Json, verb: str, group: str, resource: str, name: str) -> bool:
    names = cast("list[str]", rule.get("resourceNames") or [])
    return (
        verb in rule["verbs"]
        and group in rule.get("apiGroups", [])
        and resource in rule.get("resources", [])
        and (not names or name in names)
    )


def manager_user() -> User:
    """The manager's service account with the rights of the manifests under k8s/."""
    rules, own, scales = map(_rules, ("manager-role.yaml", "manager-namespace-role.yaml", "scales-role.yaml"))
    user = "system:serviceaccount:koordinator-system:koord-manager"
    return User(user, [*rules, *scales], {"koordinator-system": own})


def _rules(file: str) -> list[Json]:
    """The rules of all roles in a manifest."""
    roles = yaml.safe_load_all((BASE / file).read_text(encoding="utf-8"))
    return [rule for role in roles for rule in role.get("rules", ())]
