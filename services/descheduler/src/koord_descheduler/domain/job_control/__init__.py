"""Migration jobs in the service: read from objects and facts, and their effects as changes of objects and as facts.

A *look* is one call of the state machine for a job (`migration.state_machine.look`). `viewing` reads the jobs and their
inputs. `controller` has the settings from the configuration. `effects` turns the result of a look into changes of
objects, and `recording` into the fact that is stored.
"""
