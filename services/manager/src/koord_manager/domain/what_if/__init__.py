"""Recompute the manager's recorded decisions without effects, under the same configuration or another one.

run              a window of the log in order; which decision is made when
nodes            batch and mid resources, NodeSLO, measuring, ratios, devices, health; root quotas of profiles
recommendations  what containers should request, and which pods are replaced for it
admission        what is admitted and how it is changed: admission_record (which decision is about what),
admission_cases
                 (what can be decided again), admission_outcome (one decision)
reports          retained usage reports             recorded_flags   flags of the recorded manager
fates            what is compared of a node         tally            how many decisions were equal
"""
