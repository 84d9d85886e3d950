"""`python -m bench.listed_cluster <nodes> <pods>`: an API server that does nothing but list a large cluster in pages.

Its objects have the size and the parts of real ones (managed fields, environment, volumes, conditions), so that reading
them costs what it costs in life. Fifty pods each belong to one ReplicaSet and have its labels; each pod has times of
its own. With a third argument, so many more pods wait for a node. All other kinds are empty, besides two namespaces. A
watch stays open and tells nothing. A write is answered with its own body and changes nothing. Prints its port.
"""

import asyncio
import json
import re
import sys
import urllib.parse
from datetime import UTC, datetime, timedelta
from typing import Any, Final

Json = dict[str, Any]

PODS_PER_OWNER: Final = 50
_NODE: Final = '"nodeName":"node-@W@",'
_FIRST_CREATED: Final = datetime(2026, 1, 1, tzinfo=UTC)
_TO_READY: Final = timedelta(seconds=7)
_LENGTH: Final = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")


def uid_of(number: int) -> str:
    """The uid of a pod."""
    return f"00000000-0000-4000-8000-{number:012d}"


def pod_text() -> str:
    """A pod of some kilobytes; `@N@` stands for its number, `@W@` for its node's, `@G@` for its ReplicaSet's, `@C@` for
    the time of its creation and `@R@` for that at which it became ready.
    """
    names = [f"f:{part}" for part in ("image", "imagePullPolicy", "name", "resources", "terminationMessagePath")]
    managed: Json = {"f:spec": {"f:containers": {'k:{"name":"main"}': dict.fromkeys(names, 0)}}}
    environment = [{"name": f"SETTING_{index}", "value": "x" * 24} for index in range(12)]
    container: Json = {
        "name": "main",
        "image": "registry.example/team/service:1.2.3",
        "command": ["/bin/service", "--listen=:8080"],
        "env": environment,
        "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "2Gi"}},
        "volumeMounts": [{"name": "kube-api-access-@N@", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080}, "periodSeconds": 10},
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }
    condition: Json = {"status": "True", "lastProbeTime": None}
    since = {"Initialized": "@C@", "Ready": "@R@", "ContainersReady": "@R@", "PodScheduled": "@C@"}
    document: Json = {
        "metadata": {
            "name": "service-@N@",
            "namespace": "team-000000000001",
            "uid": "00000000-0000-4000-8000-@N@",
            "resourceVersion": "@N@",
            "creationTimestamp": "@C@",
            "labels": {"app": "service-@G@", "pod-template-hash": "7d9f8", "koordinator.sh/qosClass": "LS"},
            "annotations": {"prometheus.io/scrape": "true", "checksum/config": "c" * 64},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": "service-@G@",
                    "uid": "set-@G@",
                    "controller": True,
                }
            ],
            "managedFields": [
                {"manager": manager, "operation": "Update", "apiVersion": "v1", "fieldsV1": managed}
                for manager in ("kube-controller-manager", "kubelet")
            ],
        },
        "spec": {
            "containers": [container],
            "volumes": [
                {"name": "kube-api-access-@N@", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}
            ],
            "nodeName": "node-@W@",
            "schedulerName": "koord-scheduler",
            "priority": 9500,
            "serviceAccountName": "service",
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}],
        },
        "status": {
            "phase": "Running",
            "qosClass": "Burstable",
            "podIP": "10.0.0.1",
            "startTime": "@C@",
            "conditions": [{"type": kind, **condition, "lastTransitionTime": time} for kind, time in since.items()],
            "containerStatuses": [{"name": "main", "ready": True, "restartCount": 0, "imageID": "sha256:" + "a" * 64}],
        },
    }
    return json.dumps(document, separators=(",", ":"))


def node_text() -> str:
    """A node with the images that it holds."""
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", "ephemeral-storage": "1Ti"}
    images = [{"names": [f"registry.example/image-{index}:1"], "sizeBytes": 1 << 28} for index in range(50)]
    document: Json = {
        "metadata": {
            "name": "node-@N@",
            "uid": "node-uid-@N@",
            "resourceVersion": "@N@",
            "labels": {"kubernetes.io/hostname": "node-@N@", "topology.kubernetes.io/zone": "zone-1"},
        },
        "spec": {"podCIDR": "10.0.0.0/24"},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}],
            "images": images,
        },
    }
    return json.dumps(document, separators=(",", ":"))


def owner_text() -> str:
    """A ReplicaSet."""
    labels = {"app": "service-@N@", "pod-template-hash": "7d9f8"}
    document: Json = {
        "metadata": {
            "name": "service-@N@",
            "namespace": "team-000000000001",
            "uid": "set-@N@",
            "resourceVersion": "@N@",
        },
        "spec": {"replicas": PODS_PER_OWNER, "selector": {"matchLabels": labels}},
        "status": {"replicas": PODS_PER_OWNER, "readyReplicas": PODS_PER_OWNER},
    }
    return json.dumps(document, separators=(",", ":"))


def namespace_text() -> str:
    document: Json = {"metadata": {"name": "team-@N@", "uid": "namespace-@N@", "resourceVersion": "@N@"}}
    return json.dumps(document, separators=(",", ":"))


def _time(number: int, later: timedelta = timedelta()) -> str:
    return (_FIRST_CREATED + timedelta(seconds=number) + later).strftime("%Y-%m-%dT%H:%M:%SZ")


class Lists:
    """Pages of all resources, written as they are asked for."""

    def __init__(self, nodes: int, pods: int, waiting: int) -> None:
        self._nodes, self._bound = nodes, pods
        self._of = {
            "nodes": (nodes, node_text()),
            "pods": (pods + waiting, pod_text()),
            "replicasets": (pods // PODS_PER_OWNER + 1, owner_text()),
            "namespaces": (2, namespace_text()),
        }

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection: one request after the other."""
        try:
            while request := await reader.readuntil(b"\r\n\r\n"):
                method, target, *_ = request.decode("latin-1").split(" ", 2)
                sent = await reader.readexactly(int(found[1])) if (found := _LENGTH.search(request)) else b""
                path, _, query = target.partition("?")
                parameters = dict(urllib.parse.parse_qsl(query))
                if "watch" in parameters:
                    writer.write(
                        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
                    )
                    await reader.read()  # until the client ends the watch
                    return
                is_list = method == "GET" and "limit" in parameters
                status, body = ("200 OK", self._page(path, parameters)) if is_list else ("200 OK", sent)
                if method == "GET" and not is_list:
                    status, body = "404 Not Found", b'{"kind":"Status","status":"Failure","code":404}'
                writer.write(f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n".encode())
                writer.write(f"content-length: {len(body)}\r\n\r\n".encode())
                writer.write(body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def _page(self, path: str, parameters: dict[str, str]) -> bytes:
        count, text = self._of.get(path.rsplit("/", 1)[1], (0, ""))
        first, limit = int(parameters.get("continue", "0")), int(parameters["limit"])
        last = min(count, first + limit)
        items = (
            (text if number < self._bound else text.replace(_NODE, ""))
            .replace("@N@", f"{number:012d}")
            .replace("@W@", f"{number % self._nodes:012d}")
            .replace("@G@", f"{number // PODS_PER_OWNER:012d}")
            .replace("@C@", _time(number))
            .replace("@R@", _time(number, _TO_READY))
            for number in range(first, last)
        )
        following = f',"continue":"{last}","remainingItemCount":{count - last}' if last < count else ""
        meta = f'{{"resourceVersion":"1"{following}}}'
        return f'{{"kind":"List","apiVersion":"v1","metadata":{meta},"items":[{",".join(items)}]}}'.encode()


async def main() -> None:
    """Serves until it is killed."""
    nodes, pods, *waiting = (int(text) for text in sys.argv[1:])
    lists = Lists(nodes, pods, sum(waiting))
    server = await asyncio.start_server(lists.serve, "127.0.0.1", 0, limit=1 << 20)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
