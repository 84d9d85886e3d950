"""CPU quotas of cgroups whose CFS period is not 100 ms: texts of files and messages."""

import pytest
from koord_agent.domain.hooks.call import HookValues
from koord_agent.domain.kernel.cfs_bandwidth import BURST, QUOTA, in_period, per_100_ms
from koord_agent.domain.kernel.cgroup_files import INT64_MAX, from_file_text, is_equal, to_file_text, validate
from koord_agent.shell.hooks.hook_server import call_of_request, response_of
from koordcore.runtime_api.hooks import messages_of_call
from koordcore.values.invalid import InvalidInput


@pytest.mark.parametrize(
    ("us", "period_us", "number"),
    [(200_000, 100_000, 200_000), (200_000, 10_000, 20_000), (33_300, 5_000, 1_665), (-1, 10_000, -1),
     (5_000, 10_000, 1_000), (500, 100_000, 500), (200_000, 1_000_000, 2_000_000)],
)  # fmt: skip
def test_a_quota_is_counted_per_period_and_never_below_what_the_kernel_takes(
    us: int, period_us: int, number: int
) -> None:
    assert in_period(QUOTA, us, period_us) == number
    assert is_equal(QUOTA, f"{number} {period_us}\n", str(us), 1)
    if number > 1_000:
        assert per_100_ms(number, period_us) == us


@pytest.mark.parametrize("version", [1, 2])
def test_a_text_with_its_period_is_read_per_100_ms(version: int) -> None:
    assert from_file_text(QUOTA, "20000 10000\n", version) == "200000"
    assert from_file_text(BURST, "5000 10000\n", version) == "50000"
    assert not is_equal(QUOTA, "20000 10000\n", "20000", version)
    assert is_equal(QUOTA, "max 10000\n", "-1", version)
    assert in_period(BURST, 0, 10_000) == 0


def test_only_cgroup_v1_bounds_a_burst() -> None:
    assert to_file_text(BURST, "200000000", 2) == "200000000"
    validate(BURST, str(INT64_MAX), 2)
    with pytest.raises(InvalidInput):
        validate(BURST, "200000000", 1)


def test_a_hook_answers_in_the_period_of_the_request() -> None:
    rpc = "PreCreateContainerHook"
    request = messages_of_call(rpc)[0]()
    request.container_resources.cpu_period, request.container_resources.cpu_quota = 10_000, 20_000
    call = call_of_request(rpc, request, runtime="containerd")
    assert call.container is not None
    assert call.container.before.cfs_quota_us == 200_000
    answered = response_of(rpc, request, HookValues(cfs_quota_us=160_000)).container_resources
    assert (answered.cpu_period, answered.cpu_quota) == (10_000, 16_000)
