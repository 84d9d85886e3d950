"""What the agent knows about its node: desired state, pods, kubelet, CPU pools, and the snapshot for one cycle."""
