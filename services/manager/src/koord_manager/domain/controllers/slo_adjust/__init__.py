"""Assess the health of each node, and lower the weight and thresholds of unhealthy nodes. It is off by default.

The *abnormality* of a node is a smoothed number from 0 (healthy) to 1. `signals` reads the measured values of a node.
`step` computes abnormality, level, weight and thresholds of one node. `guard` limits the number of nodes whose weight
is lowered at once. `controller` runs them for all nodes.

Source:
    manager spec, 16
"""
