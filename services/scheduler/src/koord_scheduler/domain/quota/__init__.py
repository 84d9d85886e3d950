"""ElasticQuota: who may use how much of the cluster, what is lent, what has to be given back.

Start at `manager.QuotaManager`, the one door; `objects` says what a quota is, `membership` which pod belongs to which,
`accounting` what is summed up, `division` and `runtime` how a parent's resources are divided, `admission` what is
refused. Pure: amounts are integers (milli-cores for cpu, whole units otherwise), times come in as arguments.

Source:
    scheduler-core spec, 10
"""
