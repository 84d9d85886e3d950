"""Users of the server, their accounts and their permissions, generated from the service manifests.

Everything that is not listed is denied. A principal may only subscribe to its own inbox. In addition, an agent may
subscribe to the pushes for its node, and a service to the requests that it answers.

The server checks the subject of a message, and never its reply subject, to which it answers in its own name. So users
have accounts of their own kind: an answer stays in the account of the user that asked.

Source: event-bus spec, 10; decision 0043.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from koordcore.bus.client.connection import IMPORTED_API, JETSTREAM_API, USER_INFO
from koordcore.bus.names import SAVED_FOLDS, BusNames
from koordcore.bus.setup.manifest import EMBEDDED, EVERY_KIND, ServiceManifest
from koordcore.bus.setup.streams import streams
from koordcore.embedded.nats_config import ACCOUNT, NatsUser, Share, UserPermissions, ensure_user_key

MAIN_DOMAIN: Final = "main"  # JetStream domain of the servers that services use, if they have a mirror
MIRROR_DELIVERY: Final = "koord.mirror"  # First tokens of the subjects on which facts travel to a mirror
# Subject on which the server asks who a client without a key is. Clients cannot publish on it.
CALLOUT_SUBJECT: Final = "$SYS.REQ.USER.AUTH"
_INBOX: Final = "_INBOX_"
_DIRECT: Final = f"{JETSTREAM_API}.DIRECT.GET."
_NEXT: Final = f"{JETSTREAM_API}.CONSUMER.MSG.NEXT."


def permissions(manifest: ServiceManifest, names: BusNames) -> UserPermissions:
    """Return the subjects that a NATS user may publish and subscribe to. All other subjects are denied. `manifest`:
    Rights of the user: subjects and kinds of facts.
    """
    # In the account of the streams, the answer could be sent to a stream.
    publish: list[str] = [] if manifest.account == ACCOUNT and manifest.streams != "create" else [USER_INFO]
    subscribe: list[str] = [f"{_INBOX}{manifest.name}.>"]
    ev = names.prefix("ev")
    # Facts, and the leader reads that tell a conflict from a lost acknowledgement.
    publish += [f"{ev}{kind}.*" for kind in manifest.appends]
    publish += [f"{ev}{kind}.*" for kind in manifest.takes_in]
    subscribe += [f"{names.prefix('intake')}{kind}.*" for kind in manifest.takes_in]
    if manifest.appends:
        publish += _leader_reads(names.ev)
    publish += [f"{names.prefix(class_)}{kind}.*" for class_, kind in manifest.reports]
    if manifest.audits:
        publish += [f"{names.prefix('audit')}request.{manifest.audits}"]
    for short in manifest.follows:
        publish += _follow(_stream(names, short))
    if "ev" in manifest.follows:
        subscribe += [f"{names.prefix('push')}>"]  # only tells that there is something to read
    publish += [f"koord.{names.cluster}.cmd.{service}.*" for service in manifest.commands]
    publish += [f"koord.{names.cluster}.req.{service}.*" for service in manifest.asks]
    if manifest.answers:
        subscribe += [f"koord.{names.cluster}.req.{manifest.name}.*"]
    for short in manifest.works_on:
        publish += _work(_stream(names, short))
    if manifest.desired:
        publish += [f"$JS.API.DIRECT.GET.{names.desired}.{_keys(names, manifest)}"]
    if manifest.desired == "write":
        publish += [f"$KV.{names.desired_bucket}.node.*"]
    if manifest.snapshots:
        publish += [f"$O.{bucket}.>" for bucket in _snapshot_buckets(names, manifest)]
    if manifest.snapshots or manifest.checkpoints:
        publish += _object_reads(names)
    if manifest.leads:
        publish += _leader_bucket(names, manifest.name)
        subscribe += [f"$KV.{names.leader_bucket}.leader.{manifest.name}"]
    elif manifest.sees_leaders:
        publish += _leader_reads(names.leader)
    if manifest.inspects:
        publish += [f"$JS.API.STREAM.INFO.{spec.name}" for spec in streams(names, replicas=1)]
    if manifest.parks:
        publish += [f"koord.{names.cluster}.dlq.*", f"$JS.API.STREAM.MSG.DELETE.{names.dlq}"]
        publish += _leader_reads(names.dlq)
        publish += [f"$JS.API.STREAM.MSG.GET.{stream}" for stream in (names.ev, names.cmd)]
    if manifest.agent_nodes:
        node = manifest.agent_nodes
        publish += [f"koord.{names.cluster}.obs.node.{node}", *_own_aggregate(names, "nodestate", node)]
        # After a restart it compares its desired state with the last fact of its ledger, which it also gets as a push.
        publish += [f"$JS.API.DIRECT.GET.{names.ev}.{ev}node.{node}"]
        subscribe += [f"{names.prefix('push')}{kind}.{node}" for kind in ("node", "nodepolicy")]
    if manifest.proxy_nodes:
        publish += _own_aggregate(names, "criproxy", manifest.proxy_nodes)
    if manifest.issues:
        subscribe += [CALLOUT_SUBJECT]
    if manifest.mirrors:
        # The server of the mirror makes a consumer, hears its messages and the answer, and answers flow control.
        create = f"$JS.{MAIN_DOMAIN}.API.CONSUMER.CREATE.{names.ev}"
        publish += [create, f"{create}.>", f"$JS.FC.{names.ev}.>", f"$JS.FC.*.*.{names.ev}.>"]
        subscribe = [f"{MIRROR_DELIVERY}.>", "$JSC.R.*"]
    if manifest.streams == "purge":
        publish += [f"$JS.API.STREAM.PURGE.{names.ev}"]
    if manifest.streams == "create":
        publish += [f"$JS.API.STREAM.{verb}.*" for verb in ("INFO", "CREATE", "UPDATE")]
        # A new log begins without the states of the old one.
        publish += [f"$JS.API.STREAM.PURGE.{stream}" for stream in (names.desired, *names.with_snapshots)]
        publish += ["$JS.API.CONSUMER.DURABLE.CREATE.>", "$JS.API.CONSUMER.CREATE.>", "$JS.API.CONSUMER.INFO.>"]
        publish += ["$JS.API.STREAM.RESTORE.*", "$JS.SNAPSHOT.RESTORE.>"]
        # A restore up to an earlier moment reads and deletes what is later. The stream of facts denies deletions after.
        cut = (names.ev, names.explanations, names.dlq)
        publish += [f"$JS.API.STREAM.MSG.{verb}.{stream}" for verb in ("GET", "DELETE") for stream in cut]
    if manifest.streams == "copy":
        publish += [f"$JS.API.STREAM.SNAPSHOT.{stream}" for stream in names.in_backup]
        publish += [f"$JS.SNAPSHOT.ACK.{stream}.>" for stream in names.in_backup]
    return UserPermissions(
        publish_allow=tuple(dict.fromkeys(_local(manifest, subject) for subject in publish)),
        subscribe_allow=tuple(dict.fromkeys(subscribe)),
        allow_responses=manifest.answers,
    )


def shares(names: BusNames) -> tuple[Share, ...]:
    """Return what the users of each account may use of other accounts: the subjects that a user of this kind may
    publish and subscribe to, for every node.
    """
    found: set[Share] = set()
    for manifest in EVERY_KIND:
        if manifest.account == ACCOUNT:
            continue
        rights = permissions(manifest, names)
        for local in rights.publish_allow:
            found.update(_services(manifest, names, local))
        served = (names.prefix("req"), names.prefix("intake"), _INBOX)
        for local in rights.subscribe_allow:
            if not local.startswith(served):
                found.add(Share(owner=ACCOUNT, account=manifest.account, subject=local, local=local, is_stream=True))
    return tuple(sorted(found))


def _services(manifest: ServiceManifest, names: BusNames, local: str) -> Iterator[Share]:
    """Yield the shares that take a message of a user on one subject to whom it is for."""
    if local == USER_INFO:
        return  # the server answers it in every account
    for other in EVERY_KIND:
        if other.answers and local in (f"{names.prefix('req')}{other.name}.*", f"{names.prefix('req')}*.*"):
            subject = f"{names.prefix('req')}{other.name}.*"
            yield Share(owner=other.account, account=manifest.account, subject=subject, local=subject)
        for kind in other.takes_in:
            if local == f"{names.prefix('ev')}{kind}.*" and other is not manifest:
                subject = f"{names.prefix('intake')}{kind}.*"
                yield Share(owner=other.account, account=manifest.account, subject=subject, local=local)
                return
    if local.startswith(names.prefix("req")):
        return
    subject = JETSTREAM_API + local.removeprefix(IMPORTED_API) if local.startswith(f"{IMPORTED_API}.") else local
    yield Share(
        owner=ACCOUNT,
        account=manifest.account,
        subject=subject,
        local=local,
        has_answers=_has_many_answers(subject),
    )


def _has_many_answers(subject: str) -> bool:
    """Return whether a request may ask for several messages of a stream. A direct get of one subject may not."""
    return subject.startswith(_NEXT) or (subject.startswith(_DIRECT) and "." not in subject.removeprefix(_DIRECT))


def _local(manifest: ServiceManifest, subject: str) -> str:
    """Return the name that a subject of the account with the streams has in the account of a user. The server itself
    answers requests to JetStream in every account, except direct gets. So they have another name there.
    """
    if manifest.account == ACCOUNT or not subject.startswith(f"{JETSTREAM_API}.") or subject.startswith(_DIRECT):
        return subject
    return IMPORTED_API + subject.removeprefix(JETSTREAM_API)


def seed_file(directory: Path, principal: str) -> Path:
    return directory / f"{principal}.seed"


def nats_users(
    names: BusNames, directory: Path, manifests: Iterable[ServiceManifest] = EMBEDDED
) -> tuple[NatsUser, ...]:
    """Return the users for the configuration of the NATS server. Create missing key files with mode 0600. `manifests`:
    rights of each user: subjects and kinds of facts.

    Raises:
        NotRestartableError: A file does not contain a valid seed.
    """
    return tuple(nats_user(manifest, names, seed_file(directory, manifest.name)) for manifest in manifests)


def nats_user(manifest: ServiceManifest, names: BusNames, seed: Path) -> NatsUser:
    """Return one user for the configuration of the NATS server. Create its key file if it does not exist. `manifest`:
    rights of the user: subjects and kinds of facts. `seed`: path of the key file.

    Raises:
        NotRestartableError: The file does not contain a valid seed.
    """
    return NatsUser(
        name=manifest.name,
        public_key=ensure_user_key(seed).public_key,
        permissions=permissions(manifest, names),
        account=manifest.account,
    )


def _stream(names: BusNames, short: str) -> str:
    return {
        "ev": names.ev,
        "obs": names.obs,
        "explanations": names.explanations,
        "audit": names.audit,
        "adv": names.adv,
        "dlq": names.dlq,
        "cmd": names.cmd,
    }[short]


def _keys(names: BusNames, manifest: ServiceManifest) -> str:
    node = manifest.agent_nodes or "*"
    return f"$KV.{names.desired_bucket}.node.{node}"


def _own_aggregate(names: BusNames, kind: str, node: str) -> list[str]:
    """Return the subjects of a process on a node, which is the only writer of its aggregate. So a direct get of its own
    subject settles a lost acknowledgement. Leader reads would let it read every fact of the cluster.
    """
    subject = f"{names.prefix('ev')}{kind}.{node}"
    return [subject, f"$JS.API.DIRECT.GET.{names.ev}.{subject}"]


def _leader_reads(stream: str) -> list[str]:
    return [f"$JS.API.STREAM.MSG.GET.{stream}", f"$JS.API.STREAM.INFO.{stream}"]


def _follow(stream: str) -> list[str]:
    return [*_leader_reads(stream), f"$JS.API.DIRECT.GET.{stream}"]


def _work(stream: str) -> list[str]:
    """Return the subjects for working on a stream with a durable consumer of the bootstrap job. They allow to pull
    messages and to acknowledge them, in both forms of reply subjects.
    """
    return [
        f"$JS.API.CONSUMER.INFO.{stream}.>",
        f"$JS.API.CONSUMER.MSG.NEXT.{stream}.>",
        f"$JS.ACK.{stream}.>",
        f"$JS.ACK.*.*.{stream}.>",
    ]


def _object_reads(names: BusNames) -> list[str]:
    return [subject for stream in names.with_snapshots for subject in _follow(stream)]


def _snapshot_buckets(names: BusNames, manifest: ServiceManifest) -> tuple[str, ...]:
    """Return where a user stores and drops snapshots. A restore up to an earlier moment drops later ones of all."""
    if manifest.streams == "create":
        return (*names.earlier_snapshot_buckets, *(names.snapshot_bucket_of(service) for service in SAVED_FOLDS))
    return (names.snapshot_bucket_of(manifest.name),)


def _leader_bucket(names: BusNames, service: str) -> list[str]:
    return [f"$KV.{names.leader_bucket}.leader.{service}", *_leader_reads(names.leader)]
