"""Compute the resources that a node lends to batch and mid pods, its ratios and its device resources.

`batch`, `zones` and `mid` compute amounts from one usage report. `decide` combines them to one event, if the change is
large enough to publish. `ratios` and `devices` decide further values of a node.

Source:
    manager spec, 5
"""
