"""The quotas that exist without an object: root, system and default."""

from koordcore.protocol import keys
from koordcore.protocol.quota import QuotaSpec

from koord_scheduler.domain.quota.specs.settings import QuotaSettings


def built_in_quotas(settings: QuotaSettings) -> tuple[QuotaSpec, ...]:
    """Return the quotas that exist before any ElasticQuota is written.

    Source:
        scheduler-core spec, 10.1
    """
    namespace = settings.quota_group_namespace
    default, system = settings.default_quota_group_max, settings.system_quota_group_max
    return (
        QuotaSpec(name=keys.ROOT_QUOTA, namespace=namespace, parent="", is_parent=True, allow_lent=False),
        QuotaSpec(name=keys.SYSTEM_QUOTA, namespace=namespace, max=system, weight=system),
        QuotaSpec(name=keys.DEFAULT_QUOTA, namespace=namespace, max=default, weight=default),
    )
