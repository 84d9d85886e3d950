"""Configuration of the descheduler.

`document` is the file as users write it, `effective` the configuration with all defaults, `validation` checks it,
`loading` does all of that, and `policies` converts the files of the Kubernetes descheduler.
"""
