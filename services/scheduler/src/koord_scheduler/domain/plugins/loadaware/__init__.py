"""LoadAwareScheduling: filters and scores nodes by measured and expected usage instead of requests. `metric` is a
node's report, `estimate` the expected usage of a pod, `assigned` combines both into the estimated usage of a node,
`thresholds` are the limits, `rules` reads pods and nodes. `columns` filters and scores all nodes at once.

Source: scheduler-core spec, 7
"""
