"""Protection against other web pages in the same browser.

The server listens only on the loopback interface, but any page open in the browser can reach it, too: with forms
(cross-site request forgery), or under a host name that resolves to this machine (DNS rebinding). So the host name of a
request must be one of this machine, requests that change something must come from our own pages, and our pages load
only our own files.
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

from agentgym_flow._util.serving import Refused, body_of, is_this_machine, same

MAX_BODY = 16 << 10
"""The largest size of a form in bytes."""

MAX_FIELDS = 16
"""The largest number of fields in a form."""

VISITOR = "agentgym_flow_visitor"
"""The cookie that identifies a browser."""

FORM_KEY = "key"
"""The form field with the secret key of our pages."""

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",  # so that the back button requests the current state
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Guard:
    """Middleware that refuses requests from other sites and adds `HEADERS` to every response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request (the ASGI interface)."""
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
        return PlainTextResponse("This shop accepts only requests addressed to this machine.\n", 421)
    if method in ("GET", "HEAD"):
        return None
    if method != "POST":
        return PlainTextResponse("Only GET and POST are understood.\n", 405, {"Allow": "GET, HEAD, POST"})
    site = headers.get("sec-fetch-site", "same-origin")
    origin = headers.get("origin")
    if site not in ("same-origin", "none") or (origin is not None and _netloc(origin) != names[0].lower()):
        return PlainTextResponse("Only forms from the pages of this shop are accepted.\n", 403)
    return None


def _netloc(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


class Forms:
    """Binds every form to a browser. The secret is different after every start of the server."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def visitor(self, request: Request) -> str:
        """Return the visitor in the request's cookie, or a new one if there is none."""
        known = request.cookies.get(VISITOR, "")
        return known if 20 <= len(known) <= 64 and known.isascii() else secrets.token_urlsafe(16)

    def key(self, visitor: str) -> str:
        """Return the key in the forms of this visitor."""
        return hmac.new(self._secret, visitor.encode("ascii"), hashlib.sha256).hexdigest()

    def remember(self, response: Response, visitor: str) -> None:
        """Set the cookie of a visitor. Browsers omit it in forms from other sites."""
        response.set_cookie(VISITOR, visitor, httponly=True, samesite="lax", path="/")

    async def read(self, request: Request) -> Mapping[str, str]:
        """Return the fields of a form from our pages. Raises `Refused` for other requests."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/x-www-form-urlencoded":
            raise Refused(415, "A form of this shop is expected here.")
        parts = body_of(request, MAX_BODY, "That is too much text for one form.")
        body = b"".join([part async for part in parts])
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
