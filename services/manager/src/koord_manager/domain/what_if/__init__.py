"""Repeat the manager's recorded decisions under the same settings or under others, without any effect.

A *window* is the part of the log whose decisions are repeated. `run` reads the window and calls each decision at the
right position. `nodes` takes those about nodes from `controllers.node_policies` and gives them other inputs.
`recommendations` decides recommended requests. `admission` decides what a webhook or `koord apply` changed or denied.
`recording` counts the decisions whose repetition had the recorded result.
"""
