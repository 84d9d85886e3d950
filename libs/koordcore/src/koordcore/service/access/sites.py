"""Refuse requests with which a page of another site would change something, for both gates.

A browser sends requests of any page to any address that it reaches, `koord up` on the loopback address too. A form, or
a script with a body of text/plain, needs no permission of ours. The browser says which page sent a request: in
Sec-Fetch-Site, or, if it is older, in Origin. Other clients, such as `koord` and curl, send neither.

Source: Fetch Metadata Request Headers (W3C); OWASP, Cross-Site Request Forgery Prevention.
"""

from collections.abc import Mapping
from typing import Final

from starlette.responses import JSONResponse, Response
from starlette.types import Scope

from koordcore.service.access.needs import Need

_SAFE: Final = ("GET", "HEAD")
_OWN: Final = (b"same-origin", b"none")  # `none`: a person typed the address


def refusal_of_site(scope: Scope, headers: Mapping[bytes, bytes], need: Need) -> Response | None:
    """Return the answer 403 to a request that changes something, or costs a lot, and comes from a page of another site;
    None for all others. The origin `null` is another site: that of a sandboxed page, or of a file.
    """
    if scope["method"] in _SAFE and not need.is_audited:
        return None
    site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin")
    if site is not None:
        is_foreign = site not in _OWN
    else:
        is_foreign = origin is not None and origin.partition(b"://")[2] != headers.get(b"host")
    return JSONResponse({"error": "a page of another site sent this request"}, 403) if is_foreign else None
