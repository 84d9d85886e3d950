"""Audit records that fit into the log, whatever texts their senders chose."""

from typing import Final

import msgspec

from koordcore.bus.setup.streams import LARGEST_RECORD
from koordcore.events.admission import RequestAudited
from koordcore.values.shortened import shortened

LONGEST_ID: Final = 100  # Letters of the id in the headers of a record
_LARGEST_BODY: Final = LARGEST_RECORD - 1280  # Headers have 500 bytes, and the id
# Letters of each text of a record. The first that makes it fit counts; the last one does for 20 objects, also if each
# letter takes six bytes.
_LONGEST_TEXTS: Final = (1024, 253, 60, 8)


def fitting(record: RequestAudited) -> RequestAudited:
    """Return a record with texts so short that the log takes it. A text that was cut has its length and hash."""
    short = record
    for longest in _LONGEST_TEXTS:
        short = msgspec.structs.replace(
            record,
            subject=shortened(record.subject, longest),
            objects=tuple(shortened(each, longest) for each in record.objects),
            request=shortened(record.request, longest),
        )
        if len(msgspec.json.encode(short)) <= _LARGEST_BODY:
            break
    return short
