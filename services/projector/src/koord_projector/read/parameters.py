"""Parameters of the read API."""

from typing import Final

from koord_projector.read.descheduling import MAX_PAGE as MAX_MODIFICATIONS
from koord_projector.read.endpoint import Parameter
from koord_projector.read.events import MAX_PAGE as MAX_EVENTS
from koord_projector.read.nodes import MAX_PAGE as MAX_REPORTS
from koord_projector.read.pods import MAX_PAGE as MAX_PODS

PHASES: Final = ("pending", "placed", "running", "terminating")
QOS: Final = ("LSE", "LSR", "LS", "BE", "SYSTEM")
_MAX_SEQ: Final = 2**62
_MAX_SECOND: Final = 253_402_300_799
AT: Final = Parameter(name="at", about="A position of the log or an RFC 3339 time with its zone; absent: now.")
LIMIT_PODS: Final = Parameter(name="limit", about="Pods per page.", minimum=1, maximum=MAX_PODS, default=100)
LIMIT_EVENTS: Final = Parameter(name="limit", about="Facts per page.", minimum=1, maximum=MAX_EVENTS, default=100)
LIMIT_OBJECTS: Final = Parameter(name="limit", about="Objects per page.", minimum=1, maximum=5000, default=100)
LIMIT_OBSERVATIONS: Final = Parameter(
    name="limit", about="Reports per page.", minimum=1, maximum=MAX_REPORTS, default=100
)
LIMIT_AUDIT: Final = Parameter(
    name="limit", about="Modifications per page.", minimum=1, maximum=MAX_MODIFICATIONS, default=100
)
LIMIT_DEVICES: Final = Parameter(name="limit", about="Nodes per page.", minimum=1, maximum=500, default=200)
LIMIT_RESERVATIONS: Final = Parameter(name="limit", about="Reservations per page.", minimum=1, maximum=500, default=200)
LIMIT_ROUNDS: Final = Parameter(name="limit", about="Rounds.", minimum=1, maximum=500, default=60)
LIMIT_COLOCATION: Final = Parameter(name="limit", about="Results of each kind.", minimum=1, maximum=500, default=100)
LIMIT_GANGS: Final = Parameter(name="limit", about="Gangs per page.", minimum=1, maximum=500, default=200)
LIMIT_SEARCH: Final = Parameter(name="limit", about="Results of each kind.", minimum=1, maximum=100, default=20)
BEFORE: Final = Parameter(name="before", about="Only facts before this position.", minimum=0, maximum=_MAX_SEQ)
AFTER: Final = Parameter(name="after", about="Only facts after this position.", minimum=0, maximum=_MAX_SEQ, default=0)
SINCE: Final = Parameter(name="since", about="First second since 1970.", minimum=0, maximum=_MAX_SECOND)
UNTIL: Final = Parameter(name="until", about="Last second since 1970.", minimum=0, maximum=_MAX_SECOND)
POINTS: Final = Parameter(name="points", about="About so many points.", minimum=10, maximum=2000, default=300)
BODIES: Final = Parameter(name="bodies", about="Whether bodies are wanted.", choices=("true", "false"))
SEQ: Final = Parameter(name="seq", about="Position of the fact.", where="path", minimum=0, maximum=_MAX_SEQ)
