"""The agent of a node: it measures, reports, and enforces QoS."""
