"""Coscheduling: gangs, whose pods are placed together or not at all. Rules and book touch neither queue nor nodes.

parameters   the scheduling parameters of a gang, read from a PodGroup or a pod
group        a gang, its members, and the state that the gangs of a group share
roster       the fold of pods and PodGroups: members and their states
round        the scheduling round of one group
cache        GangCache: what the extension points return, as values of `outcomes`
checks       questions about a whole group
asking       which members are to be asked about again after an event
controller   the status of a PodGroup
summary      debug view, pages, and a one-line description
topology     the network as a tree
placement    the nodes of a job in that tree
preemption   the plan of a job preemption
job_plan     a whole job in one cycle
plugin       Coscheduling; with the network, `topology_coscheduling`

Source: scheduler-core spec, 8, 9, 12.1
"""
