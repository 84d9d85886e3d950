"""The ConfigMap slo-controller-config: parse, apply defaults, merge, validate, and give each node its strategies.

Reading order: fields.py (what a field is), sections.py and node_strategies.py (a struct per section), parse.py (text to
values), strategy.py (effective strategy of a node), config_map.py (all sections), node_slo.py (NodeSLO of a node),
admission.py (the webhook).
"""
