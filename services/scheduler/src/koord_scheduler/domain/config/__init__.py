"""KubeSchedulerConfiguration: from the document that a user writes to the settings that the scheduler uses.

`document` reads the text, `catalogue` lists the plugins, `merging` applies the defaults, `effective` is the result,
`kubernetes_args` and `koordinator_args` have the arguments of every plugin, `differences` compares two configurations.

Source: scheduler-core spec, 4 and 15
"""
