"""QoS strategies: each looks at the node and proposes plans for knobs, with its reason. None of them writes."""
