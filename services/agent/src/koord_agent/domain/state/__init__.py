"""Pods on the node, desired state, kubelet, and the immutable snapshot of the node that a cycle uses."""
