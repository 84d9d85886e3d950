"""ElasticQuota: how much of the cluster each quota may use, how quotas lend to each other, and which pods are revoked.

`manager.QuotaManager` is the entry point. `specs` reads quotas and pods from their objects, `books` sums up usage and
divides a parent's resources among its children, `reports` describes quotas for users. The rules are pure: amounts are
integers (milli-cores for cpu, whole units otherwise), and times are arguments.

Source: scheduler-core spec, 10
"""
