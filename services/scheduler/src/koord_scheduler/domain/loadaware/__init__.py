"""LoadAwareScheduling: nodes are judged by what they use and will use, not by what was requested on them.

`metric` is what a node reports, `estimate` what a pod will use, `assigned` joins both into the used estimate of a node,
`thresholds` and `verdict` are filter and score of one node: together the definition. `columns` answers the same for
all nodes at once. source    scheduler-core spec, 7
"""
