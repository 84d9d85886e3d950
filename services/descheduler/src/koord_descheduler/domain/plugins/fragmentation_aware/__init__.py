"""FragmentationAware, with repack: make room for gangs that wait for whole GPUs, by few moves, all or none.

`plugin` is the plugin. `gpu_repack` decides for which gang and when; `planning` makes the plan, with the planner of
`koordcore.fragmentation.repack`. `jobs.plan_steps` decides when a plan is committed or rolled back.
"""
