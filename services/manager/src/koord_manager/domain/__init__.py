"""Pure decisions of the manager.

`cluster.view` folds the log and queues changed objects in the `work_queue`. `documents` decides `koord apply` and
`koord delete`, `admission` validates and changes objects, `nodes` and `node_resources` render node policies, `gateway`
decides writes to the API server. The other packages are one controller each.
"""
