"""The numbers on which decisions of the descheduler rest, for the audit: the field `inputs` of a fact, or its counts.

Source:
    descheduler spec, 12 (inputs)
"""

from koordcore.events.descheduling.drain import DrainGroupChanged, DrainPodsChanged, DrainStarted
from koordcore.events.descheduling.inputs import Inputs, Number, plan_inputs
from koordcore.events.descheduling.migration import MigrationAdvanced, MigrationArbitrated, MigrationHeld
from koordcore.events.descheduling.operation import DryRunAnswered
from koordcore.events.descheduling.repack import RepackPlanned
from koordcore.events.envelope import Event
from koordcore.events.objects.gateway import PodEvictionRequested


def inputs_of(event: Event) -> Inputs:
    """Return the numbers on which the decision in a fact rests, such as counts and limits; empty if it has none."""
    match event:
        case MigrationHeld() | MigrationArbitrated() | PodEvictionRequested():
            return event.inputs
        case MigrationAdvanced() if event.replicas is not None:
            return _counts(replicas=event.replicas)
        case RepackPlanned():
            return plan_inputs(
                gpus=event.gpus,
                moves=len(event.moves),
                fragment_before=event.fragment_before,
                fragment_after=event.fragment_after,
            )
        case DryRunAnswered():
            return _counts(
                rounds=event.rounds,
                moves=event.moves,
                without_place=event.without_place,
                without_gain=event.without_gain,
            )
        case DrainStarted() | DrainPodsChanged():
            return _counts(pods=len(event.pods))
        case DrainGroupChanged():
            return _counts(
                confirmed=len(event.confirmed),
                running=event.running,
                succeeded=event.succeeded,
                failed=event.failed,
            )
        case _:
            return {}


def _counts(**counts: int) -> Inputs:
    return {name: Number(value=count) for name, count in counts.items()}
