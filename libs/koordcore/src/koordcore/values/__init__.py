"""Value types without a meaning of their own in the protocol: quantities, CPU lists, durations. Pure."""
