"""The NATS client of a process: wire format, connection, and requests over it."""
