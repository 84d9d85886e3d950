"""The manager's recorded decisions taken again, effects off: under the same configuration, or another one.

run              a window of the log, in its order; who decides what, and when
nodes            batch and mid resources, NodeSLO, measuring, ratios, devices, health; root quotas of profiles
recommendations  what containers should request, and which pods are created anew for it
admission        what is let in, and how it is changed: admission_record (which decision is about what), admission_cases
                 (what can be decided anew), admission_outcome (one decision)
reports          usage reports that are still kept          told    flags of the recorded manager
fates            what is compared of a node                 tally   how many decisions were taken alike
"""
