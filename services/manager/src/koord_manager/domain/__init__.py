"""Pure decisions of the manager.

`cluster.view` folds the log and adds changed objects to the `work_queue`. `documents` decides `koord apply` and `koord
delete`. `admission` validates and changes objects. `nodes` and `node_resources` compute the policies of nodes.
`gateway` decides writes to the API server. Each of the other packages is one controller.
"""
