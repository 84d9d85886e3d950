"""NUMA zones and CPUs of nodes: which CPUs and which amounts per zone a pod gets. Pure functions and values.

    cpu_layout    the CPUs of a node by core, zone and socket, as bit sets
    accumulator   choose n CPUs
    binding       whether a pod binds CPUs on a node, and how
    reserved      CPUs that are never given to pods
    zones         free amounts of the zones of a node, and a request split over some of them
    hinting       which sets of zones can satisfy a pod
    amplified     CPUs on nodes with an amplification ratio
    scoring       scores of a node, or of some of its zones, by their use once the pod is there

A zone is a NUMA node. To bind CPUs is to give a pod CPUs that no other pod uses. A set of CPUs is an integer: bit i is
CPU i. Union, intersection and count are then single operations.

Source: scheduler-fine-grained spec, 1.
"""
