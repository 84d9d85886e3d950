"""A long slo-controller-config is judged in a thread, so the manager answers other requests meanwhile."""

import asyncio
import json
import threading

import pytest
from koord_manager.domain.documents import apply
from koord_manager.domain.documents.config_verdict import ConfigQuestion, ConfigVerdict, judge_config
from koord_manager.shell.documents import processing
from koordcore.bus.adapters.memory import MemoryLog
from support.manager.loops import Manager, running


def config(entries: int, *, minutes: int = 15) -> str:
    listed = [
        {"nodeSelector": {"matchLabels": {"h": f"node-{n:05}"}}, "degradeTimeMinutes": minutes} for n in range(entries)
    ]
    data = {"colocation-config": json.dumps({"enable": True, "nodeConfigs": listed}, separators=(",", ":"))}
    metadata = {"namespace": "koordinator-system", "name": "slo-controller-config"}
    return json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})


async def test_a_long_configuration_is_judged_off_the_loop_and_other_requests_are_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judging, go_on = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def slowly(question: ConfigQuestion) -> ConfigVerdict:
        threads.append(threading.current_thread())
        judging.set()
        assert go_on.wait(60)
        return judge_config(question)

    def never(question: ConfigQuestion) -> ConfigVerdict:
        raise AssertionError("judged on the loop")

    monkeypatch.setattr(processing, "judge_config", slowly)
    monkeypatch.setattr(apply, "judge_config", never)
    manager = Manager(MemoryLog(max_payload=4 * 1024 * 1024))
    async with running(manager):
        applying = asyncio.create_task(manager.apply(config(10_000)))
        await asyncio.to_thread(judging.wait, 60)
        assert not applying.done()  # and this loop runs
        go_on.set()
        (result,) = await applying
        assert (result.action, result.errors) == ("created", [])
        (refused,) = await manager.apply(config(10_000, minutes=-1))
        assert refused.action == "refused"
        assert len(refused.errors) == 10_000
        (same,) = await manager.apply(config(10_000))
        assert same.action == "unchanged"
    assert threading.main_thread() not in threads
