"""The gateway to Kubernetes: mirrors the API server into the log and writes decisions back.

api               one client: credentials, requests, streams, rate limit
listwatch         one resource: list pages, then watch; list again when its history is gone
ingest            observed objects -> facts (pure: `domain.gateway.mirror`), in the order of each object
outbox            pending writes (pure: `domain.gateway.pending_writes`) -> requests -> facts about their answers
event_recorder    Kubernetes events and pod conditions
running           all of them while this instance leads
"""
