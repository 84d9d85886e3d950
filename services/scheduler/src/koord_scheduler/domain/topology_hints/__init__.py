"""Topology hints: sets of NUMA zones to which the resources of one pod can be aligned, and the choice of one set.

    hints       the values that hint providers give
    merging     hints of all providers -> one set of zones, under a topology policy
    affinities  the zones of pods that have reserved, for the plugins that allocate inside of them

Pure: no plugin and no column is imported here, so that every plugin may use it.

Source: scheduler-fine-grained spec, 1.5 to 1.7.
"""
