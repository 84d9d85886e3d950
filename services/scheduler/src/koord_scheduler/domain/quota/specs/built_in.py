"""The quotas that exist without an object: root, system and default."""

from collections.abc import Mapping

from koordcore.protocol import keys
from koordcore.protocol.quota import QuotaSpec
from koordcore.values.quantity import Quantity
from koordcore.values.resources import amount_of

from koord_scheduler.domain.config.args.koordinator import ElasticQuotaArgs


def built_in_quotas(args: ElasticQuotaArgs) -> tuple[QuotaSpec, ...]:
    """Return the quotas that exist without an ElasticQuota object: root, system and default.

    Source:
        scheduler-core spec, 10.1
    """
    namespace = args.quota_group_namespace
    default, system = _amounts(args.default_quota_group_max), _amounts(args.system_quota_group_max)
    return (
        QuotaSpec(name=keys.ROOT_QUOTA, namespace=namespace, parent="", is_parent=True, allow_lent=False),
        QuotaSpec(name=keys.SYSTEM_QUOTA, namespace=namespace, max=system, weight=system),
        QuotaSpec(name=keys.DEFAULT_QUOTA, namespace=namespace, max=default, weight=default),
    )


def _amounts(quantities: Mapping[str, Quantity]) -> dict[str, int]:
    return {name: amount_of(name, quantity) for name, quantity in quantities.items()}
