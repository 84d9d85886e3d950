"""Devices of nodes: what pods request of them, what nodes have, and which devices a pod is given."""
