"""Check the token of an agent's service account by the API server, which knows the node of the pod with this token.

`koord keys issue --service-account` uses it. The kubelet renews the token in the pod; the token ends with the pod.

Source:
    event-bus spec, 10; Kubernetes TokenReview (authentication.k8s.io/v1), KEP-4193 (node of bound tokens)
"""

from typing import Any, Final, Protocol, cast

from koordcore.bus.setup.issuing import AUDIENCE, LONGEST, NodeToken, Refused, claims_of
from koordcore.values import codec

from koord_manager.shell.gateway.api import ApiResponse, Unreachable

PATH: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
NODE: Final = "authentication.kubernetes.io/node-name"
"""Key of the extra field with the node of the pod that the token is bound to."""


class ReviewsApi(Protocol):
    """The method of the API server's client that sends a TokenReview."""

    async def request(self, method: str, path: str, *, body: object = None) -> ApiResponse:
        """Send one request and return its response, whatever its status. See `KubernetesApi.request`."""
        ...


class TokenReviews:
    """Checks tokens by an API server.

    Args:
        api: Client of the API server; it needs the right to create TokenReviews.
        service_account: Service account of the agents, `namespace/name`.
    """

    def __init__(self, api: ReviewsApi, service_account: str) -> None:
        self._api = api
        self._user = f"system:serviceaccount:{service_account.replace('/', ':', 1)}"

    async def check(self, token: str) -> NodeToken:
        """Return the node of the pod that a token is bound to, and when the token ends.

        Raises:
            Refused: The token is not valid, is of another service account or audience, is not bound to a pod on a
                node, is valid for longer than 24 hours, or the API server does not answer.
        """
        if not token:
            raise Refused("the client has no token")
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [AUDIENCE]},
        }
        try:
            answer = await self._api.request("POST", PATH, body=review)
        except Unreachable as error:
            raise Refused("the API server does not answer") from error
        if not answer.ok:
            raise Refused(f"TokenReview: {answer.status} {answer.message()}")
        status: dict[str, Any] = codec.decode(answer.body, dict[str, Any]).get("status") or {}
        if status.get("authenticated") is not True or AUDIENCE not in (status.get("audiences") or ()):
            raise Refused("the API server does not know the token, or it is for another audience")
        user = cast("dict[str, Any]", status.get("user") or {})
        if user.get("username") != self._user:
            raise Refused(f"the token is of {user.get('username')}, not of {self._user}")
        nodes = cast("dict[str, list[str]]", user.get("extra") or {}).get(NODE) or []
        if len(nodes) != 1:
            raise Refused("the token is not bound to a pod on a node")
        claims = claims_of(token)
        if int(claims["exp"]) - int(claims["iat"]) > LONGEST.total_seconds():
            raise Refused("the token is valid for longer than 24 hours")
        return NodeToken(nodes[0], int(claims["exp"]))
