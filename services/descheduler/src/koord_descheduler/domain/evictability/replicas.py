"""Whether a workload has enough replicas for the migration of one of its pods.

Source:
    descheduler spec, 6.2
"""

from koordcore.values.invalid import InvalidInput

from koord_descheduler.domain.arguments.migration_controller import Gate, MigrationControllerArgs
from koord_descheduler.domain.arguments.workload_limit import workload_limit


def has_expected_replicas(replicas: int | None, args: MigrationControllerArgs) -> bool:
    """Return whether a pod of a workload may be migrated, judged by the replicas of the workload.

    A workload with one replica, or with as many as may be in migration or unavailable, must not be touched. If one of
    these two limits is an invalid percentage, the result is False. If the arguments switch this check off, it is True.

    Args:
        replicas: Replicas of the workload, 0 if it is unknown; None for a pod without controller, which passes.
        args: Arguments of the MigrationController.

    Source:
        descheduler spec, 6.2
    """
    if replicas is None or args.skip_check_expected_replicas or args.skips(Gate.EXPECTED_REPLICAS):
        return True
    try:
        limits = {
            workload_limit(replicas, args.max_migrating_per_workload),
            workload_limit(replicas, args.max_unavailable_per_workload),
        }
    except InvalidInput:
        return False
    return replicas != 1 and replicas not in limits
