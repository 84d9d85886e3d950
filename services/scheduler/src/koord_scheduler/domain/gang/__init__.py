"""Coscheduling: pods that are placed together or not at all. Nothing here touches a queue or a node.

parameters        what a gang asks for, read from a PodGroup or a pod
group             a gang, its members, and what the gangs of a group share
roster            who belongs to which gang, in which state
round             the group that is being scheduled
cache             GangCache: the plugin's points, as methods that return the values of `outcomes`
bound_gang        with whom a member is bound
phase             status of a PodGroup
summary           debug view and one-line state
topology          the network as a tree; its layers: topology_layers
placement         a job's pods in that tree; the plan of a round: topology_plan
topology_score    where a single pod of a running job should go
preemption        room for a whole job
job_plan          a whole job in one cycle

Source:
    scheduler-core spec, 8, 9, 12.1
"""
