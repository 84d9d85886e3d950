"""GPUs of the demo fail and recover in turn."""

from koordctl.demo.run import FAILING_NODES, FAILURES, device_faults


def test_each_failing_gpu_recovers_before_the_next_one_fails_and_before_the_end() -> None:
    faults = device_faults([f"gpu-{number}" for number in range(5)], 1000)

    assert len(faults) == 2 * FAILING_NODES * FAILURES
    assert [each.at_pod for each in faults] == sorted({each.at_pod for each in faults})
    assert faults[-1].at_pod < 1000
    for failure, recovery in zip(faults[::2], faults[1::2], strict=True):
        assert failure.fault
        assert (recovery.node, recovery.fault) == (failure.node, "")
    assert {each.node for each in faults} == {"gpu-0", "gpu-1", "gpu-2"}


def test_a_demo_without_gpus_has_no_failures() -> None:
    assert device_faults([], 1000) == []
