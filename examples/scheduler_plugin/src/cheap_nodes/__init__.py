"""A scheduler plugin from a package of its own: pods go to cheap nodes, and to none that costs more than they may.

A node's label says its price class, a ConfigMap says what each class costs an hour, a pod's annotation says what its
node may cost. `CHEAP_NODES` is what the entry point of pyproject.toml leads to.
"""

from cheap_nodes.offer import CHEAP_NODES

__all__ = ["CHEAP_NODES"]
