"""NUMA zones and CPUs of nodes: which CPUs and amounts per zone a pod gets. Pure functions and values.

    cpu_layout    the CPUs of a node by core, zone and socket, as bit sets
    accumulator   choose n CPUs
    binding       whether a pod binds CPUs on a node, and how
    reserved      CPUs that are never given to pods
    zones         what the zones of a node have left, and a request split over some of them
    hinting       which sets of zones can satisfy a pod
    amplified     CPUs on nodes with an amplification ratio
    scoring       how good the rest of a node, or of some zones, looks

A set of CPUs is an integer: bit i is CPU i. Union, intersection and count are then single operations.

Source: scheduler-fine-grained spec, 1.
"""
