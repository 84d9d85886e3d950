"""Pure scheduling: decides which pod goes to which node, and explains why. The package has no effects outside.

columns    the nodes as arrays                            cluster  the pods and nodes: records, classes, ledgers
framework  the extension points of plugins                plugins  the built-in plugins, with their books
engine     filters and scores the nodes for one pod       config   KubeSchedulerConfiguration
loop       queue, cycle, preemption, commits, folding     replay   repeats decisions; snapshots of the state
fit        capacity questions
"""
