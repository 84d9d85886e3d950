"""The drain controller: empty nodes without a gap in capacity.

`progress` has the state of one drain, `node_drain` decides its next steps, `group_drain` those of a group. All are pure
functions: the service records what they decide and carries it out. Start with `node_drain`.

Source:
    descheduler spec, 11
"""
