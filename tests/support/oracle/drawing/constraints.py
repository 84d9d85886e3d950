"""What a pod says about its nodes: selectors, affinity in all forms, spread in all forms, tolerations."""

from support.oracle.drawing.dice import HOST, NAMESPACES, ZONE, Dice
from support.oracle.lines import Document

POD_LABELS = {"app": ("x", "y"), "tier": ("x", "y"), "version": ("1", "2")}
NODE_LABELS = {"disk": ("ssd", "hdd", "5", "10", "007", "-3"), "rack": ("1", "2", "3")}
TOPOLOGY_KEYS = (ZONE, ZONE, HOST, HOST, "rack", "disk")
TEAMS = ("red", "blue")
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def _expression(dice: Dice, pools: dict[str, tuple[str, ...]], more: tuple[str, ...] = ()) -> Document:
    operator = dice.one(("In", "NotIn", "Exists", "DoesNotExist", *more))
    key = dice.one([*pools, "absent"] if dice.chance(0.1) else [*pools])
    found: Document = {"key": key, "operator": operator}
    if operator in ("In", "NotIn"):
        found["values"] = dice.some([value for value in pools.get(key, ("x",)) if value != "-3"], 2)
    elif operator in ("Gt", "Lt"):
        found["values"] = [dice.one(("5", "7", "0", "2", "-1" if dice.chance(0.1) else "1"))]
    return found


def _node_expression(dice: Dice) -> Document:
    return _expression(dice, {**NODE_LABELS, ZONE: ("a", "b", "c")}, ("Gt", "Lt"))


def selector(dice: Dice) -> Document:
    """A selector of pods, at times empty, which selects all of them."""
    found: Document = {}
    pools = {key: POD_LABELS[key] for key in ("app", "tier")}
    if dice.chance(0.8):
        found["matchLabels"] = dice.labels(pools, 0.5)
    if dice.chance(0.3):
        found["matchExpressions"] = [_expression(dice, pools)]
    return found


def node_selector(dice: Dice) -> dict[str, str]:
    return dice.labels({ZONE: ("a", "b"), "rack": ("1", "2"), "disk": ("ssd", "5")}, 0.4)


def _node_term(dice: Dice) -> Document:
    term: Document = {}
    if dice.chance(0.9):
        term["matchExpressions"] = [_node_expression(dice) for _ in range(dice.one((1, 1, 2)))]
    if dice.chance(0.15):
        operator = dice.one(("In", "NotIn"))
        term["matchFields"] = [{"key": "metadata.name", "operator": operator, "values": [f"n{dice.number(0, 3)}"]}]
    return term


def _pod_term(dice: Dice) -> Document:
    term: Document = {"topologyKey": dice.one(TOPOLOGY_KEYS)}
    if dice.chance(0.95):
        term["labelSelector"] = selector(dice)
    if dice.chance(0.2):
        term["namespaces"] = dice.some(NAMESPACES, 2)
    if dice.chance(0.2):
        term["namespaceSelector"] = {"matchLabels": dice.labels({"team": TEAMS}, 0.7)}
    if "labelSelector" in term and dice.chance(0.2):
        term[dice.one(("matchLabelKeys", "mismatchLabelKeys"))] = ["version"]
    return term


def affinity(dice: Dice) -> Document:
    found: Document = {}
    if dice.has("node affinity", 0.15):
        node: Document = {}
        if dice.chance(0.6):
            node[REQUIRED] = {"nodeSelectorTerms": [_node_term(dice) for _ in range(dice.number(1, 2))]}
        if dice.chance(0.6):
            preferences = range(dice.number(1, 3))
            node[PREFERRED] = [{"weight": dice.number(1, 100), "preference": _node_term(dice)} for _ in preferences]
        found["nodeAffinity"] = node
    for side, share in (("podAffinity", 0.1), ("podAntiAffinity", 0.15)):
        if dice.has(side, share):
            terms: Document = {}
            if dice.chance(0.5):
                terms[REQUIRED] = [_pod_term(dice) for _ in range(dice.one((1, 1, 2)))]
            if dice.chance(0.6):
                weighted = range(dice.number(1, 2))
                terms[PREFERRED] = [
                    {"weight": dice.number(1, 100), "podAffinityTerm": _pod_term(dice)} for _ in weighted
                ]
            found[side] = terms
    return found


def spread(dice: Dice) -> list[Document]:
    """One to three constraints, each for another pair of key and action."""
    found: dict[tuple[str, str], Document] = {}
    for _ in range(dice.one((1, 1, 2, 3))):
        key, action = dice.one(TOPOLOGY_KEYS), dice.one(("DoNotSchedule", "ScheduleAnyway"))
        constraint: Document = {"maxSkew": dice.one((1, 1, 2, 3)), "topologyKey": key, "whenUnsatisfiable": action}
        if dice.chance(0.95):
            constraint["labelSelector"] = selector(dice)
        if action == "DoNotSchedule" and dice.chance(0.25):
            constraint["minDomains"] = dice.number(1, 4)
        for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if dice.chance(0.3):
                constraint[policy] = dice.one(("Honor", "Ignore"))
        if "labelSelector" in constraint and dice.chance(0.25):
            constraint["matchLabelKeys"] = dice.one((["version"], ["version", "absent"]))
        found[key, action] = constraint
    return [*found.values()]


def taint(dice: Dice) -> Document:
    effect = dice.one(("NoSchedule", "PreferNoSchedule", "PreferNoSchedule", "NoExecute"))
    return {"key": dice.one(("t1", "t2")), "value": dice.one(("", "x", "5")), "effect": effect}


def toleration(dice: Dice) -> Document:
    found: Document = {}
    if dice.chance(0.85):
        found["key"] = dice.one(("t1", "t2", "t1", "t2", "node.kubernetes.io/unschedulable"))
    operator = dice.one((None, "Equal", "Exists", "Exists")) if "key" in found else "Exists"
    if operator is not None:
        found["operator"] = operator
    if operator != "Exists" and dice.chance(0.7):
        found["value"] = dice.one(("x", "5", ""))
    if dice.chance(0.6):
        found["effect"] = dice.one(("NoSchedule", "PreferNoSchedule", "NoExecute"))
    if found.get("effect") == "NoExecute" and dice.chance(0.3):
        found["tolerationSeconds"] = dice.one((0, 30))
    return found
