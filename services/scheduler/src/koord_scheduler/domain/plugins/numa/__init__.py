"""NodeNUMAResource: which CPUs and which amounts per NUMA zone a pod gets; filter, score and reservation.

    cpu_layout    the CPUs of a node by core, zone and socket, as bit sets
    accumulator   choose n CPUs
    binding       whether a pod binds CPUs on a node, and how
    hardware      what a node declares; CPUs that are never given to pods
    zones         free amounts of the zones of a node, and a request split over some of them
    hinting       which sets of zones can satisfy a pod, and their scores
    books         the CPUs and zones in use, node by node (`node_book`)
    judging       the filter; `codes` are its answers

A zone is a NUMA node. To bind CPUs is to give a pod CPUs that no other pod uses. A set of CPUs is an integer: bit i
is CPU i. Union, intersection and count are then single operations.

Source: scheduler-fine-grained spec, 1
"""
