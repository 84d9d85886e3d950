"""Migration of single pods: jobs, their limits, their order, and the steps of each job.

`job` has a PodMigrationJob as a value, `jobs` counts those in flight, and `limits` and `object_limiter` say how many
there may be. `arbitration` decides which waiting jobs go on, and `state_machine` what a job does next; `world` has what
a job sees and asks for. `reservation_template` has the Reservation that a job makes, and `collection` says when a job
is deleted. Start with `state_machine`.
"""
