"""LowNodeLoad: move pods from nodes with high measured usage to nodes with low usage.

`plugin` runs the node pools of a round. `load` measures and classifies nodes, `passes` chooses pods, `anomaly` delays
action until a node was hot often enough, `arguments` has the arguments. Start with `plugin`.

Source:
    descheduler spec, 8
"""
