"""Node resources: what each node lends to batch and mid pods, its ratios and devices, and when they are written.

    batch, zones, mid     amounts from one report               publish   amplified, third parties deducted
    ratios, devices       what else stands on the node          sync      whether it has to be written
    decide                all of it for one node, as one event

Source:
    manager spec, 5
"""
