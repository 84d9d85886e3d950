"""The framework that runs plugins: extension points, registry, eviction path with its limits, and the round.

Start with `plugin`, then `eviction` and `round`.
"""
