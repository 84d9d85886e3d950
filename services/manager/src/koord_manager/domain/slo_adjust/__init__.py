"""Assess the health of each node, and lower the weight and thresholds of unhealthy nodes. It is off by default.

`signals` reads the measured values of a node. `step` assesses one node. `guard` limits the number of nodes that may be
lowered at once. `controller` runs them for all nodes.

Source:
    manager spec, 16
"""
