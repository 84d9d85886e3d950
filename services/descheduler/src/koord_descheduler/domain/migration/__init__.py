"""Migration of single pods: jobs, their limits, their order, and the steps of each job.

`job` has a PodMigrationJob as a value, `jobs` counts those in flight, and `limits` and `object_limiter` limit their
number. `arbitration` decides which waiting jobs may begin, and `state_machine` the next steps of a job; `world` has the
inputs and effects of these steps. `reservation_template` builds the Reservation of a job, and `collection` decides when
a job is deleted. Start with `state_machine`.
"""
