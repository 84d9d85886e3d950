# pyright: reportUnknownMemberType=false
# nkeys has no annotations for its functions.
"""JWTs of NATS: a user with permissions and an expiry, and the answer to a server that asks who a client is.

No kept library for Python makes them. The format is a JWT whose algorithm is `ed25519-nkey`: the signature of an NKEY
over header and claims.

Source:
    NATS ADR-14 (JWT libraries), ADR-26 (auth callout)
"""

import base64
import hashlib
import json
from typing import Any, Final, cast

import nkeys

from koordcore.embedded.nats_config import UserPermissions

_HEADER: Final = {"typ": "JWT", "alg": "ed25519-nkey"}
_UNLIMITED: Final = -1


def user_claims(
    name: str, key: str, permissions: UserPermissions, *, account: str, issued: int, expires: int
) -> dict[str, Any]:
    """Return the claims of a user that the server admits until it expires. The server then closes the connection.

    Args:
        name: Name of the user.
        key: Public key that the server has made for the connection.
        permissions: Subjects that the user may publish and subscribe to.
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
            "subs": _UNLIMITED,
            "data": _UNLIMITED,
            "payload": _UNLIMITED,
        },
    }


def answer_claims(server: str, key: str, *, issued: int, jwt: str = "", error: str = "") -> dict[str, Any]:
    """Return the claims of the answer to a server.

    Args:
        server: Id of the server that asks.
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
        nkeys.NkeysError: The seed is not valid.
    """
    pair = nkeys.from_seed(bytearray(seed.strip()))
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
