"""What runs cycles: the queue, the cycle, preemption, commits, and the fold of the log.

queue    pods that wait: to be attempted, at Permit, for an event, for victims
cycle    one attempt, and the decision that follows
preempt  the search for pods to evict
commit   decisions on their way to the log
state    everything that a scheduler knows and assumes
folding  facts of the log become state
status   what the scheduler publishes besides placements; `controllers` decides when
"""
