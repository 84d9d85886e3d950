"""The plugins of Koordinator and of this project; `upstream` has those of the Kubernetes descheduler.

Only `registry` imports them. The plugins MigrationController and Drain are in `jobs` and `drain`.
"""
