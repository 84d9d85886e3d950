"""The page of the guide, from the first command to the last."""

import pytest
from support.cluster.cluster import unusable
from support.compose import missing_programs
from support.guide import GUIDE, ROOT, Reader

LACKING = unusable() or missing_programs()
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.root,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(LACKING != "", reason=LACKING),
]


def test_every_command_of_the_guide_prints_what_its_page_shows() -> None:
    reader = Reader(ROOT, {})
    try:
        reader.follow(GUIDE / "try-a-cluster.md")
    finally:
        reader.run("make cluster-down")
        (ROOT / "batch.yaml").unlink(missing_ok=True)
