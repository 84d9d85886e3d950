"""Requests between processes: endpoints, which answer, and work queues, which keep a request until it is done.

`endpoint` defines both, `catalogue` lists all of them, and `koordcore.bus.work` carries the requests over NATS.
"""
