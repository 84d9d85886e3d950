"""Samples of the node and its pods, and the aggregates over them."""
