"""Values of kernel files as pure functions of a pod, the NodeSLO and the node."""
