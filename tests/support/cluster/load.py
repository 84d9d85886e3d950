"""A latency-sensitive server on a real node, its client, and batch work beside it.

The server computes for some milliseconds in answer to each line. The client sends a line at fixed times, whether the
last answer has come or not, and measures from the time at which a line was due.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from support.cluster.cluster import Cluster
from support.cluster.machine import CGROUP, run
from support.cluster.node_init import CGROUPS
from support.cluster.workloads import workload

Json = dict[str, Any]
SYSTEM_IMAGE: Final = "koordstream:latest"
PORT: Final = 7000
EVERY_SECONDS: Final = 0.02
REQUESTS: Final = {"cpu": "50m", "memory": "64Mi"}
LIMITS: Final = {"cpu": "2", "memory": "128Mi"}

SERVER: Final = f"""
import hashlib, socketserver, subprocess, sys, time
BLOCK = bytes(1 << 20)
burning = []
class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            began = time.monotonic()
            match line.decode().strip():
                case "burn":
                    burning.extend(subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2))
                case "calm":
                    while burning:
                        burning[-1].kill()
                        burning.pop().wait()
                case _:
                    hashlib.sha256(BLOCK).digest()
            self.wfile.write(b"%f\\n" % began)
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
print("serves", flush=True)
Server(("", {PORT}), Handler).serve_forever()
"""
CLIENT: Final = f"""
import json, socket, sys, threading, time
address, count = sys.argv[1], int(sys.argv[2])
found = []
with socket.create_connection((address, {PORT})) as link:
    began = time.monotonic()
    def read():
        file = link.makefile("rb")
        for number in range(count):
            file.readline()
            found.append(time.monotonic() - began - number * {EVERY_SECONDS})
    reader = threading.Thread(target=read)
    reader.start()
    for number in range(count):
        time.sleep(max(0, began + number * {EVERY_SECONDS} - time.monotonic()))
        link.sendall(b"work\\n")
    reader.join()
print(json.dumps(found))
"""
TELL: Final = f"""
import socket, sys
with socket.create_connection((sys.argv[1], {PORT})) as link:
    link.sendall(sys.argv[2].encode() + b"\\n")
    print(float(link.makefile("rb").readline()))
"""
HOG: Final = """
import subprocess, sys, time
for _ in range(6): subprocess.Popen([sys.executable, "-c", "while True: pass"])
print("burns", flush=True)
time.sleep(100000)
"""


def python(document: Json, program: str) -> Json:
    """Return the pod with a program of Python in place of its shell."""
    container = document["spec"]["containers"][0]
    container |= {"image": SYSTEM_IMAGE, "command": ["python3", "-c", program]}
    return document


def server(name: str) -> Json:
    """A latency-sensitive pod with the server."""
    return python(workload(name, "LS", REQUESTS, LIMITS), SERVER)


def hog(name: str, qos: str, requests: Mapping[str, str] | None = None) -> Json:
    """A pod with six busy loops. Without `requests`, a best-effort pod that nothing but its class limits."""
    document = python(workload(name, qos, requests or {}, LIMITS if requests else {}), HOG)
    if requests is None:
        del document["spec"]["containers"][0]["resources"]
    return document


@dataclass(frozen=True)
class Latency:
    """Of requests, in milliseconds."""

    p50: float
    p99: float
    slowest: float

    def __str__(self) -> str:
        return f"p50 {self.p50:.1f} ms, p99 {self.p99:.1f} ms, slowest {self.slowest:.1f} ms"


def latency(cluster: Cluster, address: str, count: int) -> Latency:
    """Send `count` requests to a server from outside of the node's cgroups, and return how long they took."""
    own = CGROUPS / "cpu" / CGROUP / "client"
    own.mkdir(exist_ok=True)
    join = f'echo $$ >{own / "cgroup.procs"}; exec "$0" "$@"'
    words = ("sh", "-c", join, *cluster.machine.words(sys.executable, "-c", CLIENT, address, str(count)))
    found = sorted(json.loads(run(*words)))
    own.rmdir()
    return Latency(*(1000 * found[min(len(found) - 1, len(found) * part // 100)] for part in (50, 99, 100)))


def burn(cluster: Cluster, address: str) -> float:
    """Let a server use all CPUs until `calm`. Return when it began, as `time.monotonic()`."""
    return float(cluster.machine.run(sys.executable, "-c", TELL, address, "burn"))


def calm(cluster: Cluster, address: str) -> None:
    """End what `burn` began."""
    cluster.machine.run(sys.executable, "-c", TELL, address, "calm")
