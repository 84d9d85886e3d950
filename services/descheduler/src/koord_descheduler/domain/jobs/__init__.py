"""Migration of single pods: the MigrationController with its jobs, their limits, order and steps.

`plugin` filters pods and asks for jobs. `job` has a PodMigrationJob as a value, `in_flight` counts them, and `limits`
and `object_limiter` limit their number. `arbitration` decides which waiting jobs may begin, and `state_machine` the
next steps of a job; `world` has the inputs and effects of these steps.

A *look* is one call of the state machine for a job: `viewing` reads its inputs, `effects` turns its result into changes
of objects, and `recording` into a fact. `controller` has the settings from the configuration. Start with
`state_machine`.
"""
