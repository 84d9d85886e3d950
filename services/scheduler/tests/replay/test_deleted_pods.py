"""The list of deleted pods whose last events the fold has not reached."""

from koord_scheduler.domain.cluster.forgetting import DeletedPods

PODS = 20_000


def test_pods_whose_last_event_was_folded_are_forgotten() -> None:
    deleted = DeletedPods()
    for number in range(PODS):
        deleted.note(f"pod-{number}", number)
        deleted.prune(position=number)
    assert len(deleted.seqs) <= 1024
    deleted.note("late", PODS + 1)
    assert (deleted.seq_of("late"), deleted.seq_of("pod-0")) == (PODS + 1, 0)
