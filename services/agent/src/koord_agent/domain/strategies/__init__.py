"""QoS strategies: each file has the rules of one feature and the strategy that proposes them as plans."""
