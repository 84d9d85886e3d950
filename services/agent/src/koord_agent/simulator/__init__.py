"""Machines without hardware: nodes, pods and their load in memory, behind the same `Host` protocol as a real machine.

Only simulated nodes load it: its arrays take 15 MiB that a real node keeps for its pods.
"""
