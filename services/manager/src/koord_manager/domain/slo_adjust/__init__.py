"""SLO dynamic adjustment: how healthy each node is, how much that lowers its weight and its water levels.

    policy    what slo-adjust-config says          signals   what is measured of a node
    step      one evaluation of one node           guard     how many nodes may be lowered at once

Off by default. source    manager spec, 16
"""
