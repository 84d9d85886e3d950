"""Repack: make room for gangs that wait for whole GPUs, by few moves of other pods, all together or not at all.

`waiting` finds the gangs, `nodes` describes nodes and pods to the planner of `koordcore.fragmentation.repack`, and
`planning` makes the plan; start there. `migration.plan_steps` decides when a plan is committed or rolled back.
"""
