"""Index of pods by name, by controlling owner, and by the node that they are bound to."""

from koordcore.events.envelope import name_token
from koordcore.protocol.objects import Pod

_FINISHED = ("Succeeded", "Failed")


class PodIndex:
    """Index of pods: the uids by name, by controlling owner, and by the node to which the API server bound them. The
    cost of a change does not depend on the number of pods.
    """

    def __init__(self) -> None:
        self._by_name: dict[tuple[str, str], str] = {}
        self._by_owner: dict[str, set[str]] = {}
        self._owners: dict[str, tuple[str, ...]] = {}
        self._by_node: dict[str, set[str]] = {}
        self._nodes: dict[str, str] = {}

    def put(self, uid: str, pod: Pod) -> tuple[str, str]:
        """Add a pod to the index, or update it. A pod in phase Succeeded or Failed counts as a pod without a node.

        Returns:
            Subject tokens of the node before and after; "" for no node. If the node did not change, both are "".
        """
        self._by_name[pod.metadata.namespace, pod.metadata.name] = uid
        owners = tuple(owner.uid for owner in pod.metadata.owner_references if owner.controller)
        if owners != self._owners.get(uid, ()):
            self._disown(uid)
        if owners:
            self._owners[uid] = owners
            for owner in owners:
                self._by_owner.setdefault(owner, set()).add(uid)
        return self._bind(uid, name_token(pod.spec.node_name) if pod.status.phase not in _FINISHED else "")

    def drop(self, uid: str, namespace: str, name: str) -> tuple[str, tuple[str, ...]]:
        """Remove a pod from the index.

        Returns:
            Subject token of the node to which the pod was bound ("" for no node), and the uids of its controlling
            owners.
        """
        before, _ = self._bind(uid, "")
        if self._by_name.get((namespace, name)) == uid:
            del self._by_name[namespace, name]
        return before, self._disown(uid)

    def _disown(self, uid: str) -> tuple[str, ...]:
        owners = self._owners.pop(uid, ())
        for owner in owners:
            pods = self._by_owner[owner]
            pods.discard(uid)
            if not pods:
                del self._by_owner[owner]
        return owners

    def _bind(self, uid: str, node: str) -> tuple[str, str]:
        before = self._nodes.get(uid, "")
        if node == before:
            return "", ""
        if before:
            del self._nodes[uid]
            on_node = self._by_node[before]
            on_node.discard(uid)
            if not on_node:
                del self._by_node[before]
        if node:
            self._nodes[uid] = node
            self._by_node.setdefault(node, set()).add(uid)
        return before, node

    def uid(self, namespace: str, name: str) -> str | None:
        """Return the uid of the pod with this namespace and name; None if there is none."""
        return self._by_name.get((namespace, name))

    def of_owner(self, uid: str) -> set[str]:
        """Return the uids of the pods that the owner with this uid controls; empty if there are none."""
        return self._by_owner.get(uid, set())

    def owners(self) -> list[str]:
        """Return the uids of all objects (ReplicaSets, Jobs ...) that control at least one pod."""
        return list(self._by_owner)

    def node(self, uid: str) -> str:
        """Return the subject token of the node that the pod is bound to; "" if it is not bound or is finished."""
        return self._nodes.get(uid, "")

    def bound_on(self, node: str) -> set[str]:
        """Return the uids of the pods that are bound to a node and are not finished. `node`: subject token of the
        node.
        """
        return self._by_node.get(node, set())
