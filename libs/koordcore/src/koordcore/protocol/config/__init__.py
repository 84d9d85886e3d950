"""The ConfigMap slo-controller-config: parse, apply defaults, merge, validate, and give each node its strategies.

Reading order: kinds.py (types of fields), tables.py (fields of every section), sections.py (list of sections), parse.py
(text to values), strategy.py (effective strategy of a node), config_map.py (all sections), typed.py (the typed
colocation strategy), agent.py and node_slo.py (NodeSLO of a node), admission.py and overlap.py (the webhook).
"""
