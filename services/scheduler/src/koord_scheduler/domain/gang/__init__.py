"""Coscheduling: gangs, whose pods are placed together or not at all. This package touches neither queue nor nodes.

parameters        the scheduling parameters of a gang, read from a PodGroup or a pod
group             a gang, its members, and the state that the gangs of a group share
roster            the fold of pods and PodGroups: members and their states
round             the scheduling round of one group
cache             GangCache: the plugin's extension points, which return the values of `outcomes`
checks            questions about a whole group
phase             the status of a PodGroup
summary           debug view, and a one-line description
topology          the network as a tree; its layers are in `topology_layers`
placement         the nodes of a job in that tree; the plan of a round is in `topology_plan`
topology_score    the score for one more pod of a running job
preemption        the plan of a job preemption
job_plan          a whole job in one cycle

Source:
    scheduler-core spec, 8, 9, 12.1
"""
