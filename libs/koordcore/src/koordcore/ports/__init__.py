"""What the shell needs from the world, as Protocols: the log, observations, desired state, snapshots, time, leadership."""
