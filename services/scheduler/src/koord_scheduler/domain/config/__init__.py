"""KubeSchedulerConfiguration: from the document that a user writes to the settings that the scheduler uses.

`document` reads the text, `catalogue` lists the plugins, `merging` applies the defaults, `effective` is the result,
`args/` has the arguments of every plugin, `gates` the feature gates.

Source: scheduler-core spec, 4 and 15
"""
