"""Configuration of the descheduler.

`document` is the file as users write it, `effective` the configuration with all defaults, `loading` reads
and checks it, and `policies` converts the files of the Kubernetes descheduler.
"""
