"""SLO adjustment: the health of each node, and how much it lowers the node's weight and thresholds. Off by default.

`signals` reads the measured values of a node, `step` evaluates one node, `guard` limits how many nodes may be lowered
at once, and `controller` runs them.

Source:
    manager spec, 16
"""
