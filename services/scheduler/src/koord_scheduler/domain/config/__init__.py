"""KubeSchedulerConfiguration: from what a user writes to what the scheduler does.

`document` reads text, `catalogue` says which plugins exist, `merging` applies the defaults, `effective` is the result;
`args/` holds the arguments of every plugin, `gates` the feature gates. source    scheduler-core spec, 4 and 15
"""
