"""What the shell needs from the world, as Protocols: log, observations, desired state, snapshots, time, leadership."""
