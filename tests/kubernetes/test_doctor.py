"""What `koord doctor` says about the CronJob that does the nightly checks, on a real API server."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from koordcore.values.timestamps import rfc3339
from koordctl.stack.kubernetes.programs import admin_kubeconfig
from support.koord_command import KoordCommand
from support.kubernetes.control_plane import ControlPlane
from support.kubernetes.installation import NAMESPACE
from support.until import until_blocking

pytestmark = [pytest.mark.kubernetes]

CRON_JOB: Final = ("cronjob", "koord-nightly", "-n", NAMESPACE)
FAILING: Final = ("job", "failing", "-n", NAMESPACE)


def test_doctor_names_a_suspended_nightly_job_and_one_that_failed(plane: ControlPlane, tmp_path: Path) -> None:
    def told() -> str:
        words = ("doctor", "-o", "json", "--kubeconfig", str(admin_kubeconfig(plane.directory)))
        findings = json.loads(KoordCommand(tmp_path).run(*words, status=1))
        (found,) = (each for each in findings if each["check"] == "CronJob koord-nightly")
        return f"{found['verdict']}: {found['told']}"

    def change(*words: str, **fields: Any) -> None:
        plane.kubectl("patch", *CRON_JOB, "--type=merge", *words, "-p", json.dumps(fields))

    def has_failed() -> bool:
        conditions: list[dict[str, str]] = plane.get(*FAILING)["status"].get("conditions", [])
        return any(each["type"] == "Failed" and each["status"] == "True" for each in conditions)

    template = plane.get(*CRON_JOB)["spec"]["jobTemplate"]["spec"]
    as_before = {
        "suspend": False,
        "jobTemplate": {"spec": {"activeDeadlineSeconds": template["activeDeadlineSeconds"]}},
    }
    change(spec={"suspend": True, "jobTemplate": {"spec": {"activeDeadlineSeconds": 1}}})
    try:
        assert told() == "warning: is suspended: nothing backs up the log"
        plane.kubectl("create", *FAILING, "--from=cronjob/koord-nightly")
        until_blocking(has_failed, "the job has failed")
        assert told() == "broken: has failed jobs: failing"
        change(spec=as_before)
        change("--subresource=status", status={"lastSuccessfulTime": rfc3339(datetime.now(UTC).replace(microsecond=0))})
        assert told() == "ok: has succeeded 0.0 h ago"
    finally:
        plane.kubectl("delete", *FAILING, "--ignore-not-found")
        change(spec=as_before)
