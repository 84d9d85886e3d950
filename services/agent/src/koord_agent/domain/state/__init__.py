"""What runs on the node and what should: pods, desired state, kubelet, and the immutable look of a cycle."""
