"""Plugins that match pods with nodes: selectors, taints, ports, affinity and spreading."""
