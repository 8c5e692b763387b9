"""What stands between the shop and other pages in the same browser: who may ask, how much, and what a page may do.

The server listens on the loopback interface only, but every page that the person has open elsewhere can reach that,
too: by its own forms (forged requests), or under a name of its own that points here (DNS rebinding). So the name in the
request must be one of this machine, a request that changes something must come from a page of ours, and our pages load
nothing but our own files.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agentgym_flow._util.loopback import is_this_machine, same

MAX_BODY = 16 << 10
"""The most bytes that a form may have."""

MAX_FIELDS = 16
"""The most fields that a form may have."""

VISITOR = "agentgym_flow_visitor"
"""The cookie that tells browsers apart."""

FORM_KEY = "key"
"""The form field that only our pages know."""

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",  # going back asks again, and gets the present state
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Refused(Exception):
    """A request is refused.

    Args:
        status: the HTTP status.
        reason: a sentence for the person.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class Guard:
    """Middleware around the whole application: refuses requests from elsewhere and puts `HEADERS` on every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, as ASGI asks for it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refusal = _refusal(scope["method"], Headers(scope=scope))
        await (refusal or self._app)(scope, receive, send_with_headers)


def _refusal(method: str, headers: Headers) -> Response | None:
    names = headers.getlist("host")
    if not is_this_machine(names):
        return PlainTextResponse("This shop answers under the names of its own machine only.\n", 421)
    if method in ("GET", "HEAD"):
        return None
    if method != "POST":
        return PlainTextResponse("Only GET and POST are understood.\n", 405, {"Allow": "GET, HEAD, POST"})
    site = headers.get("sec-fetch-site", "same-origin")
    origin = headers.get("origin")
    if site not in ("same-origin", "none") or (origin is not None and _netloc(origin) != names[0].lower()):
        return PlainTextResponse("Forms are taken from the pages of this shop only.\n", 403)
    return None


def _netloc(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


class Forms:
    """Ties every form to the browser that it was sent to. The secret is new with every start of the server."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def visitor(self, request: Request) -> str:
        """Return the visitor of the request, a new one when its cookie does not name one."""
        known = request.cookies.get(VISITOR, "")
        return known if 20 <= len(known) <= 64 and known.isascii() else secrets.token_urlsafe(16)

    def key(self, visitor: str) -> str:
        """Return what the forms of this visitor carry."""
        return hmac.new(self._secret, visitor.encode("ascii"), hashlib.sha256).hexdigest()

    def remember(self, response: Response, visitor: str) -> None:
        """Let the browser keep who it is; a form of another site is sent without it."""
        response.set_cookie(VISITOR, visitor, httponly=True, samesite="lax", path="/")

    async def read(self, request: Request) -> Mapping[str, str]:
        """Return the fields of a form of ours. Raises `Refused` for any other body."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/x-www-form-urlencoded":
            raise Refused(415, "A form of this shop is expected here.")
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY:
                raise Refused(413, "That is too much text for one form.")
        try:
            fields = dict(parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=MAX_FIELDS))
        except ValueError:
            raise Refused(400, "That form cannot be read.") from None
        if not same(fields.get(FORM_KEY, ""), self.key(self.visitor(request))):
            raise Refused(
                403,
                "This page is from before the shop was opened, or the browser keeps no cookies. Please start again.",
            )
        return fields
