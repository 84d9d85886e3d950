"""Compute the resources that a node lends to batch and mid pods, its ratios and its device resources.

`batch`, `zones` and `mid` compute amounts from one usage report. `publish` normalizes them and deducts what other
systems hold. `ratios` and `devices` compute further values of a node. `decide` combines all of them to one event, and
`sync` decides whether a change is large enough to publish.

Source:
    manager spec, 5
"""
