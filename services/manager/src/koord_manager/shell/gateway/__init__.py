"""The gateway to Kubernetes: mirrors the API server into the log, carries decisions back.

api         one client: credentials, requests, streams, rate limit
listwatch   one resource: pages of a list, then a watch, relisted when its history is gone
ingest      what was seen -> facts (pure: `domain.gateway.mirror`), in the order of each object
outbox      what is owed (pure: `domain.gateway.owed`) -> requests -> facts about their answers
running     all of it while this instance leads
"""
