"""Tokens of nodes, at most 24 hours valid, with which an agent proves to the issuer which node it is on.

`koord keys token` makes one; `issuing` checks it. On Kubernetes, the token of the pod's service account is one, too.

Source:
    event-bus spec, 10 (expiry of at most 24 h for agents)
"""

import datetime
import json
from pathlib import Path
from typing import Final

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import OKPKey

from koordcore.bus.setup.issuing import NodeToken, Refused

LONGEST: Final = datetime.timedelta(hours=24)
AUDIENCE: Final = "koordstream-log"
KEY_FILE: Final = "node-tokens.pem"
REVOKED_FILE: Final = "revoked.json"
"""File: node -> time in seconds since 1970. Tokens that were issued until then are refused."""
_ALGORITHMS: Final = ["Ed25519"]
_LEEWAY_SECONDS: Final = 60


class NodeTokens:
    """Makes and checks the tokens of one installation.

    Args:
        folder: Folder with the key and the list of revoked nodes. The key is made if it is missing.
        cluster: Id of the cluster.
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
        """Return a new token of a node.

        Args:
            node: Name of the node.
            now: The time in UTC.
            validity: Time until it is refused, at most 24 hours; more is cut.
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
