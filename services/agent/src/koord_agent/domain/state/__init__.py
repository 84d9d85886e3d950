"""Pods on the node, desired state, kubelet, and the immutable look of a cycle."""
