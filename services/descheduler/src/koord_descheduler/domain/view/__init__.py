"""Immutable view of nodes and pods that rounds, plugins and controllers read.

`pods` has a pod with its facts, `nodes` a node, `cluster` the whole with its indexes, `fit` says whether a pod fits a
node, and `orders` in which order pods leave. Start with `cluster`.
"""
