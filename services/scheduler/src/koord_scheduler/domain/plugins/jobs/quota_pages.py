"""HTTP pages of ElasticQuota.

Source: scheduler-core spec, 14.
"""

from collections.abc import Mapping

import msgspec

from koord_scheduler.domain.framework.lifecycle_hooks import NotFound, PageAnswer
from koord_scheduler.domain.quota.manager import QuotaManager
from koord_scheduler.domain.quota.status.reports import QuotaReports


def quota_pages(quotas: QuotaManager) -> Mapping[str, PageAnswer]:
    """Return the HTTP pages about quotas: path below `/apis/v1/plugins/ElasticQuota/` -> function that answers."""
    reports = QuotaReports(quotas)

    def quota(asked: Mapping[str, str]) -> object:
        if asked["name"] not in quotas.forest.nodes:
            raise NotFound(f"cannot find quota {asked['name']}")
        return reports.document(asked["name"], include_pods=_asks_for_pods(asked))

    def documents(asked: Mapping[str, str]) -> object:
        return reports.documents(asked.get("tree", ""), include_pods=_asks_for_pods(asked))

    def trees(asked: Mapping[str, str]) -> object:
        names = [asked["tree"]] if "tree" in asked else sorted(quotas.forest.roots)
        return {tree: [msgspec.to_builtins(each) for each in reports.explain_tree(tree)] for tree in names}

    return {"quotas/{name}": quota, "quotas": documents, "trees": trees}


def _asks_for_pods(asked: Mapping[str, str]) -> bool:
    return asked.get("includePods", "").lower() in ("true", "1")
