"""Migration jobs in the service: read from objects and facts, and their effects as changes of objects and as facts.

`viewing` reads the jobs and what they look at. `controller` has what the configuration says about them. `effects` turns
a look into changes, and `recording` into the fact that is stored.
"""
