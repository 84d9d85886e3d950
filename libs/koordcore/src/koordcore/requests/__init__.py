"""Requests between processes: endpoints that answer, work queues that keep a request until it is done. Pure values.

`endpoint` defines what they are, `catalogue` lists them, and `koordcore.bus.work` carries them over NATS.
"""
