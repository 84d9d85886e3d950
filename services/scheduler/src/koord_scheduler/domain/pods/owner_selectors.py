"""Selectors of the services and controllers to which a pod belongs, for default spreading.

Source:
    scheduler-core spec, 5.6 (system defaults)
"""

from collections.abc import Mapping, Sequence
from typing import Final

from koordcore.protocol.objects import LabelSelector, LabelSelectorRequirement

_CONTROLLERS: Final = ("ReplicaSet", "StatefulSet", "ReplicationController", "Deployment", "Job")


class OwnerSelectors:
    """Label selectors of services and workload controllers, by namespace, for the default topology spreading.

    Attributes:
        version: Number that grows with every change.
    """

    def __init__(self) -> None:
        self.version = 0
        self._services: dict[str, dict[str, dict[str, str]]] = {}
        self._controllers: dict[tuple[str, str, str], LabelSelector] = {}

    def put_service(self, namespace: str, name: str, selector: dict[str, str]) -> None:
        """Set the label selector of a service. An empty selector selects no pod."""
        services = self._services.setdefault(namespace, {})
        if services.get(name) != selector:
            services[name] = selector
            self.version += 1

    def drop_service(self, namespace: str, name: str) -> None:
        """Remove a service."""
        services = self._services.get(namespace, {})
        if services.pop(name, None) is not None:
            self.version += 1
        if not services:
            self._services.pop(namespace, None)

    def put_controller(self, kind: str, namespace: str, name: str, selector: LabelSelector | None) -> None:
        """Set the label selector of a workload controller. None: the controller is deleted or has no selector."""
        key = (kind, namespace, name)
        if self._controllers.get(key) == selector:
            return
        if selector is None:
            self._controllers.pop(key, None)
        else:
            self._controllers[key] = selector
        self.version += 1

    def selector_of(
        self, namespace: str, labels: Mapping[str, str], owners: Sequence[tuple[str, str]]
    ) -> LabelSelector | None:
        """Return one selector that requires all selectors of a pod's services and controllers.

        None if there are no selectors.

        Args:
            namespace: Namespace of the pod.
            labels: Labels of the pod, by which services select it.
            owners: (kind, name) of the controllers that own the pod.
        """
        match_labels: dict[str, str] = {}
        expressions: list[LabelSelectorRequirement] = []
        for selector in self._services.get(namespace, {}).values():
            if selector and all(labels.get(key) == value for key, value in selector.items()):
                match_labels |= selector
        for kind, name in owners:
            owned = self._controllers.get((kind, namespace, name)) if kind in _CONTROLLERS else None
            if owned is not None:
                match_labels |= owned.match_labels
                expressions += owned.match_expressions
        if not match_labels and not expressions:
            return None
        return LabelSelector(match_labels=match_labels, match_expressions=expressions)
