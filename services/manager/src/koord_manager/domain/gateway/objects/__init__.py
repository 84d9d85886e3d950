"""Objects that the gateway writes whole: Device, NodeResourceTopology, NodeMetric and NodeSLO, Reservation."""
