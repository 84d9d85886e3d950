"""The `koord` command: starts and stops the embedded stack, and asks the services.

`app` lists the commands. Each noun (pod, node, objects, log, ...) has a folder with its commands, what they ask and
what they
print; a noun with one module is a module. All of them use `access` (talking to services, reading the log) and `render`
(tables,
YAML, JSON).

A new column of `koord get` goes to `objects.columns`. A new event in `koord explain pod` is a row of
`koordcore.stories.pod.EVENTS`; a new line below it goes to `pod.lines`.
"""
