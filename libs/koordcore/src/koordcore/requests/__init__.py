"""Requests between processes: endpoints, which answer, and work queues, which keep a request until it is done.

`endpoint` defines what they are, `catalogue` lists them, and `koordcore.bus.work` carries them over NATS.
"""
