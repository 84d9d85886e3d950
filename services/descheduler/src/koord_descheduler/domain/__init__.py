"""Pure part of the descheduler.

`view` has the immutable view of the cluster that one round reads, `framework` the extension points, the eviction path
and the round itself, `plugins` the plugins.
"""
