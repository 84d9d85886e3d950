"""Facts that can be decoded and that have no rows in Postgres."""

import hashlib
from typing import Final

import msgspec
from koordcore.events.envelope import StoredEvent
from koordcore.events.objects import PodSpecAdded
from koordcore.protocol.objects import ObjectMeta, Pod
from support.histories.recording import Recorder

REFUSED_UID: Final = "u-refused"
INCOMPRESSIBLE: Final = "".join(hashlib.sha256(bytes([number])).hexdigest() for number in range(128))
"""A text of 8,192 characters that is too long for an entry of an index, also compressed."""


def refused_fact(seq: int) -> StoredEvent:
    """A pod whose name Postgres cannot put into the index of names."""
    recorder = Recorder()
    pod = Pod(metadata=ObjectMeta(name=INCOMPRESSIBLE, namespace="default", uid=REFUSED_UID))
    recorder.write("podspec", REFUSED_UID, PodSpecAdded(object=pod))
    return msgspec.structs.replace(recorder.events[0], seq=seq)
