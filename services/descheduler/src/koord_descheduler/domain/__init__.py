"""Pure rules of the descheduler. A room imports only those after it.

The order: rounds, plugins, drain, jobs, config, framework, view.
"""
