"""Interfaces of the shell as Protocols: log, observations, desired state, snapshots, time, leadership."""
