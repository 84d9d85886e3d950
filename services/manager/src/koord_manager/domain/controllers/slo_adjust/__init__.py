"""Assess the health of each node, and lower the weight and thresholds of unhealthy nodes. It is off by default.

The *abnormality* of a node is a smoothed number from 0 (healthy) to 1. `assessment` reads the measured values of a
node, computes abnormality, level, weight and thresholds, and limits the number of nodes whose weight is lowered at
once. `controller` runs it for all nodes. `facts` ends the health of a node.

Source:
    manager spec, 16
"""
