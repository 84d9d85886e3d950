"""QoS strategies: each reads the node and proposes plans for kernel files. Strategies do not write."""
