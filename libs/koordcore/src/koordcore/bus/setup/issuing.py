# pyright: reportUnknownMemberType=false
# nats-py's subscribe is only partly annotated.
"""The issuer of agents' credentials: the NATS server asks it who a client without a key is (auth callout).

    agent --token--> NATS server --who is it?--> issuer --a user for one node, for an hour at most--> NATS server

The issuer checks the token, and answers with a JWT that has the permissions of the agent of that node and an expiry.
The server closes the connection when the JWT expires; the agent connects again, with the token in its file. If a token
was revoked, this is refused. The issuer has no right to read or write the log. `koord keys issue` runs it.

Source:
    event-bus spec, 10; NATS ADR-26 (auth callout)
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from nats.aio.msg import Msg

from koordcore.bus.client.connection import BusConnection
from koordcore.bus.names import BusNames
from koordcore.bus.setup.manifest import agent, agent_name
from koordcore.bus.setup.nats_jwt import answer_claims, claims_of, sign, user_claims
from koordcore.bus.setup.principals import CALLOUT_SUBJECT, permissions
from koordcore.embedded.nats_config import ACCOUNT
from koordcore.events.envelope import name_token
from koordcore.ports.clock import Clock

log = logging.getLogger("koordcore.bus")

SESSION_SECONDS: Final = 3600
"""Longest time of a connection until its token is checked again."""
QUEUE: Final = "issuers"


class NodeToken(NamedTuple):
    """Content of a valid token of an agent: its node, and the end of its validity in seconds since 1970."""

    node: str
    expires: int


class Refused(Exception):
    """A token is not valid. The message is for the log of server and issuer, and repeats no secret."""


Check = Callable[[str], Awaitable[NodeToken]]
"""Returns the node of a token; raises Refused."""


class CredentialIssuer:
    """Answers the servers' questions. Several issuers share the work.

    Args:
        connection: Connection with the user `issuer`.
        names: Names of the cluster's streams and subjects.
        seed: Seed of the account key (`SA...`) that the server's configuration names as issuer.
        check: Checks tokens.
        clock: The host's clock.
        for_proxies: Whether agents may append the facts of the CRI proxies of their nodes.
    """

    def __init__(
        self,
        connection: BusConnection,
        names: BusNames,
        seed: bytes,
        *,
        check: Check,
        clock: Clock,
        for_proxies: bool = False,
    ) -> None:
        self._connection = connection
        self._names = names
        self._seed = seed
        self._check = check
        self._clock = clock
        self._for_proxies = for_proxies

    async def run(self) -> None:
        """Answer until cancelled."""
        client = self._connection.client
        subscription = await client.subscribe(CALLOUT_SUBJECT, queue=QUEUE, cb=self._answer)
        try:
            await asyncio.Event().wait()
        finally:
            if client.is_connected:
                await subscription.unsubscribe()

    async def _answer(self, message: Msg) -> None:
        try:
            claims = claims_of(message.data.decode())
            request = claims["nats"]
            server, key = str(request["server_id"]["id"]), str(request["user_nkey"])
            token = str(request["connect_opts"].get("auth_token", ""))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            log.warning("callout_unreadable error=%s", type(error).__name__)
            return
        now = int(self._clock.unix())
        try:
            found = await self._check(token)
        except Refused as refusal:
            log.warning("agent_refused reason=%s", refusal)
            answer = answer_claims(server, key, issued=now, error=str(refusal))
        else:
            expires = min(found.expires, now + SESSION_SECONDS)
            name = agent_name(found.node)
            manifest = agent(name_token(found.node), name=name, for_proxy=self._for_proxies)
            allowed = permissions(manifest, self._names)
            user = user_claims(name, key, allowed, account=ACCOUNT, issued=now, expires=expires)
            answer = answer_claims(server, key, issued=now, jwt=sign(user, self._seed))
            log.info("agent_admitted node=%s expires=%d", found.node, expires)
        await message.respond(sign(answer, self._seed).encode())
