"""Recommend resource requests for containers from their past usage.

A *target* is the workload, or the pods of a selector, that a Recommendation selects. `model` has the histograms of one
container of a target, and computes amounts from their percentiles. `book` has all models and feeds them from usage
reports. `targets` finds the pods that a Recommendation selects. `decide` renders the amounts with conditions as events.
`apply` sets requests of new pods and replaces running ones.

Source:
    manager spec, 15
"""
