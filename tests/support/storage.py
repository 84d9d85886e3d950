"""A store with the interface of S3 on this machine: the server of moto, in a process of its own."""

import http.client
import os
import subprocess
import sys
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager

from koordcore.embedded.ports import free_ports
from support.until import DEADLINE_SECONDS, until_blocking

BUCKET = "kept"


@contextmanager
def s3_bucket(*more: str) -> Generator[str]:
    """An empty bucket as `s3://...`. Inside the block, the environment has its address and a key.

    Args:
        more: Names of further buckets.
    """
    port = free_ports(1)[0]
    url = f"http://127.0.0.1:{port}"
    given = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": url,
        "AWS_ALLOW_HTTP": "true",
    }
    before = {name: os.environ.get(name) for name in given}
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until_blocking(lambda: _answers(url))
        for name in (BUCKET, *more):
            request = urllib.request.Request(f"{url}/{name}", method="PUT")
            with urllib.request.urlopen(request, timeout=DEADLINE_SECONDS) as answer:
                assert answer.status == 200
        os.environ.update(given)
        yield f"s3://{BUCKET}"
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        server.kill()
        server.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=DEADLINE_SECONDS) as answer:
            return answer.status == 200
    except (OSError, http.client.HTTPException):
        return False
