"""Node resources: what each node lends to batch and mid pods, its ratios and its devices, and when that is written.

    batch, zones, mid     amounts from one report               publish   amplified, third parties deducted
    ratios, devices       what else stands on the node          sync      whether it has to be written
    decide                all of it for one node, as one event

source    manager spec, 5
"""
