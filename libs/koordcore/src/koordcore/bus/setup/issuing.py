"""The issuer of agents' credentials: the NATS server asks it who a client without a key is (auth callout).

    agent --token--> NATS server --who is it?--> issuer --a user for one node, for an hour at most--> NATS server

The issuer checks the token, and answers with a JWT that has the permissions of the agent of that node and an expiry.
The server closes the connection when the JWT expires; the agent connects again, with the token in its file. If a token
was revoked, this is refused. The issuer has no right to read or write the log. `koord keys issue` runs it.

`koord keys token` makes tokens, at most 24 hours valid. On Kubernetes, the token of the pod's service account is one,
too. No kept library for Python makes JWTs of NATS: their algorithm is `ed25519-nkey`, the signature of an NKEY over
header and claims.

Source: event-bus spec, 10; NATS ADR-14 (JWT libraries), ADR-26 (auth callout).
"""

import asyncio
import base64
import contextlib
import datetime
import hashlib
import json
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import OKPKey

from koordcore.bus.client.connection import BusConnection, NotConnected
from koordcore.bus.client.wire import pub
from koordcore.bus.names import BusNames
from koordcore.bus.setup.manifest import agent, agent_name
from koordcore.bus.setup.principals import CALLOUT_SUBJECT, permissions
from koordcore.bus.setup.questions import FairQuestions, Question, RefusedTokens, why_no_token
from koordcore.embedded.nats_config import NODE_LIMITS, UserPermissions
from koordcore.events.envelope import name_token
from koordcore.ports.clock import Clock
from koordcore.values.nkey_seed import pair_of

_HEADER: Final = {"typ": "JWT", "alg": "ed25519-nkey"}
_UNLIMITED: Final = -1


def user_claims(
    name: str, key: str, permissions: UserPermissions, *, account: str, issued: int, expires: int
) -> dict[str, Any]:
    """Return the claims of a user that the server admits until it expires. The server then closes the connection.

    Args:
        key: Public key that the server has made for the connection.
        account: Name of the account in the server's configuration.
        issued: Time in seconds since 1970.
        expires: Time in seconds since 1970.
    """
    return {
        "aud": account,
        "sub": key,
        "name": name,
        "iat": issued,
        "exp": expires,
        "nats": {
            "type": "user",
            "version": 2,
            "pub": {"allow": list(permissions.publish_allow)},
            "sub": {"allow": list(permissions.subscribe_allow)},
            "subs": NODE_LIMITS.subscriptions,
            "data": _UNLIMITED,
            "payload": _UNLIMITED,
        },
    }


def answer_claims(server: str, key: str, *, issued: int, jwt: str = "", error: str = "") -> dict[str, Any]:
    """Return the claims of the answer to a server.

    Args:
        key: Public key that the server has made for the connection.
        issued: Time in seconds since 1970.
        jwt: The user; "" for a refusal.
        error: Reason of the refusal, which the server logs; "" if the client is admitted.
    """
    body = {"type": "authorization_response", "version": 2, **({"jwt": jwt} if jwt else {"error": error})}
    return {"aud": server, "sub": key, "iat": issued, "nats": body}


def sign(claims: dict[str, Any], seed: bytes) -> str:
    """Return claims as a JWT that the key of a seed has signed.

    Raises:
        ValueError: The seed is not valid.
    """
    pair = pair_of(seed.strip())
    complete = {**claims, "iss": bytes(pair.public_key).decode()}
    identity = hashlib.sha256(json.dumps(complete, sort_keys=True).encode()).digest()
    complete["jti"] = base64.b32encode(identity).rstrip(b"=").decode()
    signed = f"{_encoded(_HEADER)}.{_encoded(complete)}"
    return f"{signed}.{_base64(pair.sign(signed.encode()))}"


def claims_of(jwt: str) -> dict[str, Any]:
    """Return the claims of a JWT. Its signature is not checked.

    Raises:
        ValueError: It is not a JWT.
    """
    parts = jwt.split(".")
    if len(parts) != 3:
        raise ValueError("a JWT has three parts")
    claims: object = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    if not isinstance(claims, dict):
        raise ValueError("the claims are not an object")
    return cast("dict[str, Any]", claims)


def _encoded(part: dict[str, Any]) -> str:
    return _base64(json.dumps(part, separators=(",", ":")).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


log = logging.getLogger("koordcore.bus")

SESSION_SECONDS: Final = 3600  # Longest time of a connection until its token is checked again
QUEUE: Final = "issuers"
CHECKS_AT_ONCE: Final = 32
ANSWER_SECONDS: Final = 1.8  # Real seconds for an answer. The agent waits for 2 s, and the server for 2.5 s.
TELL_SECONDS: Final = 1.0  # Real seconds between two lines about refusals


class NodeToken(NamedTuple):
    """Content of a valid token of an agent: its node, and the end of its validity in seconds since 1970."""

    node: str
    expires: int


class Refused(Exception):
    """A token is not valid. The message is for the log of server and issuer, and repeats no secret."""


class Unchecked(Refused):
    """A token could not be checked at this moment. It is checked again when it comes again."""


class _Asked(NamedTuple):
    """What a server asks about one client."""

    reply: str  # Subject of the answer
    server: str  # Public key of the server
    key: str  # Public key that the server has made for the connection
    token: str


Check = Callable[[str], Awaitable[NodeToken]]  # Returns the node of a token; raises Refused


class CredentialIssuer:
    """Answers the servers' questions. Several issuers share the work.

    Args:
        connection: Connection with the user `issuer`.
        seed: Seed of the account key (`SA...`) that the server's configuration names as issuer.
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
        self._questions = FairQuestions[_Asked]()
        self._refused = RefusedTokens()
        self._arrived = asyncio.Event()
        self._told_at, self._untold = float("-inf"), 0

    async def run(self) -> None:
        """Answer until cancelled."""
        client = self._connection.client
        subscription = await client.subscribe_sink(CALLOUT_SUBJECT, self._receive, queue=QUEUE)
        workers = [asyncio.create_task(self._work()) for _ in range(CHECKS_AT_ONCE)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.wait(workers)
            if client.is_connected:
                await client.unsubscribe_sink(subscription)

    def _receive(self, _: bytes, reply: bytes, __: bytes, payload: bytes) -> None:
        try:
            claims = claims_of(payload.decode())
            request = claims["nats"]
            server, key = str(request["server_id"]["id"]), str(request["user_nkey"])
            token = str(request["connect_opts"].get("auth_token", ""))
            address = str(request["client_info"].get("host", ""))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            log.warning("callout_unreadable error=%s", type(error).__name__)
            return
        end = time.monotonic() + ANSWER_SECONDS
        self._questions.put(address, Question(end, _Asked(reply.decode(), server, key, token)))
        self._arrived.set()

    async def _work(self) -> None:
        while True:
            question = self._questions.take(time.monotonic())
            if question is None:
                self._arrived.clear()
                await self._arrived.wait()
                continue
            await self._answer(question.end, question.asked)
            await asyncio.sleep(0)  # a refusal waits for nothing: let the connection be read

    async def _answer(self, end: float, asked: _Asked) -> None:
        server, key, token = asked.server, asked.key, asked.token
        now = int(self._clock.unix())
        try:
            found = await self._checked(token, end)
        except Refused as refusal:
            self._tell(str(refusal))
            answer = answer_claims(server, key, issued=now, error=str(refusal))
        except TimeoutError:
            self._tell("the check took longer than the server waits")
            return
        else:
            expires = min(found.expires, now + SESSION_SECONDS)
            name = agent_name(found.node)
            manifest = agent(name_token(found.node), name=name, for_proxy=self._for_proxies)
            allowed = permissions(manifest, self._names)
            user = user_claims(name, key, allowed, account=manifest.account, issued=now, expires=expires)
            answer = answer_claims(server, key, issued=now, jwt=sign(user, self._seed))
            log.info("agent_admitted node=%s expires=%d", found.node, expires)
        with contextlib.suppress(NotConnected):
            self._connection.write(pub(asked.reply, "", sign(answer, self._seed).encode()))

    async def _checked(self, token: str, end: float) -> NodeToken:
        """Return the node of a token. What is refused cheaply is refused first."""
        now = time.monotonic()
        if reason := why_no_token(token) or self._refused.reason(token, now):
            raise Refused(reason)
        try:
            async with asyncio.timeout(end - now):
                return await self._check(token)
        except Unchecked:
            raise
        except Refused as refusal:
            self._refused.note(token, str(refusal), now)
            raise

    def _tell(self, reason: str) -> None:
        """Tell a refusal. Whoever reaches a server chooses how many there are, so few of them become lines."""
        self._untold += 1
        now = time.monotonic()
        if now >= self._told_at + TELL_SECONDS:
            others = f" others={self._untold - 1}" if self._untold > 1 else ""
            log.warning("agent_refused reason=%s%s", reason, others)
            self._told_at, self._untold = now, 0


LONGEST: Final = datetime.timedelta(hours=24)
AUDIENCE: Final = "koordstream-log"
KEY_FILE: Final = "node-tokens.pem"
# File: node -> time in seconds since 1970. Tokens that were issued until then are refused.
REVOKED_FILE: Final = "revoked.json"
_ALGORITHMS: Final = ["Ed25519"]
_LEEWAY_SECONDS: Final = 60


class NodeTokens:
    """Makes and checks the tokens of one installation.

    Args:
        folder: Folder with the key and the list of revoked nodes. The key is made if it is missing.
    """

    def __init__(self, folder: Path, cluster: str) -> None:
        self._revoked_file = folder / REVOKED_FILE
        self._cluster = cluster
        file = folder / KEY_FILE
        if not file.exists():
            folder.mkdir(parents=True, exist_ok=True)
            file.touch(mode=0o600)
            file.write_bytes(OKPKey.generate_key("Ed25519").as_pem(private=True))
        self._key = OKPKey.import_key(file.read_bytes())

    def issue(self, node: str, now: datetime.datetime, validity: datetime.timedelta = LONGEST) -> str:
        """Return a new token of a node. `now`: the time in UTC. `validity`: time until it is refused, at most 24 hours;
        more is cut.
        """
        issued = int(now.timestamp())
        claims: dict[str, object] = {
            "iss": self._cluster,
            "aud": AUDIENCE,
            "sub": node,
            "iat": issued,
            "exp": issued + int(min(validity, LONGEST).total_seconds()),
        }
        return jwt.encode({"alg": "Ed25519"}, claims, self._key, algorithms=_ALGORITHMS)

    def check(self, token: str, now: datetime.datetime) -> NodeToken:
        """Return the node of a token, and when the token ends.

        Raises:
            Refused: The token is not ours, has expired, is valid for longer than 24 hours, or was revoked.
        """
        seconds = int(now.timestamp())
        try:
            claims = jwt.decode(token, self._key, algorithms=_ALGORITHMS).claims
            jwt.JWTClaimsRegistry(
                now=seconds,
                leeway=_LEEWAY_SECONDS,
                iss={"essential": True, "value": self._cluster},
                aud={"essential": True, "value": AUDIENCE},
                sub={"essential": True},
                iat={"essential": True},
                exp={"essential": True},
            ).validate(claims)
        except (JoseError, ValueError, TypeError) as error:
            raise Refused(f"the token is not valid ({type(error).__name__})") from None
        node, issued, expires = str(claims["sub"]), int(claims["iat"]), int(claims["exp"])
        if expires - issued > LONGEST.total_seconds():
            raise Refused(f"the token of {node} is valid for longer than 24 hours")
        if issued <= self.revoked().get(node, -1):
            raise Refused(f"the token of {node} was revoked")
        return NodeToken(node, expires)

    def revoked(self) -> dict[str, int]:
        """Return node -> time until which its tokens were revoked."""
        try:
            return json.loads(self._revoked_file.read_text())
        except FileNotFoundError:
            return {}

    def revoke(self, node: str, now: datetime.datetime) -> None:
        """Refuse all tokens of a node that exist now. A token that is issued a second later is valid."""
        part = self._revoked_file.with_suffix(".new")
        part.write_text(json.dumps({**self.revoked(), node: int(now.timestamp())}, indent=2))
        part.replace(self._revoked_file)
