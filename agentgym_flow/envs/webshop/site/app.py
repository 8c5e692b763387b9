"""The web site as a Starlette application, and its server on the loopback interface.

Every action is a form, answered by a redirect. Its address includes the step of the page, so that forms of outdated
pages (after the back button or a double click) change nothing: the current page is shown instead.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import re
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache
from importlib.resources import files
from typing import Any

import jinja2

from agentgym_flow._util import serving
from agentgym_flow._util.serving import Refused
from agentgym_flow.core import SPLITS
from agentgym_flow.envs.webshop.env import WebShopEnv
from agentgym_flow.envs.webshop.observation import Site, TextKind, elements, environment, page_context
from agentgym_flow.envs.webshop.site.sessions import EPISODE, PAGES, Record, SessionState, Shop, ShopSession, score_card
from agentgym_flow.errors import AgentGymFlowError, BadLog, BadSetting

with serving.needing_extra():
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.middleware import Middleware
    from starlette.requests import Request
    from starlette.responses import RedirectResponse, Response
    from starlette.routing import Route

    from agentgym_flow.envs.webshop.site.guard import FORM_KEY, Forms, Guard

ADMIN = "agentgym_flow_admin"
"""The cookie of a browser that has sent the token."""

STATIC = {"shop.css": "text/css", "shop.js": "text/javascript", "icon.svg": "image/svg+xml"}
"""The static files and their types."""

MOST_DIGITS = 9
"""The largest number of digits of steps and tasks."""

_NOTES = {
    "past": "That page was from before. This is where your visit is now.",
    "words": "Type some words to search for.",
    "gone": "That is not on this page. This is where your visit is now.",
}
_TITLES = {
    "index": "Search",
    "search_results": "Results",
    "item_page": "Product",
    "item_sub_page": "Product",
    "done": "Your score",
}


def create_app(shop: Shop, token: str | None = None) -> Starlette:
    """Return the application for `shop`. It closes the shop when the server stops.

    Args:
        shop: the shop.
        token: the token for the list of all visits; None to show it to everyone.

    Raises:
        BadSetting: the token is empty.
    """
    if token == "":
        raise BadSetting("the token is empty; leave it out, or choose a token that is hard to guess")
    site = _Site(shop, token)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        shop.close()

    return Starlette(
        routes=[
            Route("/", site.start_page),
            Route("/static/{name}", site.static),
            Route("/visits", site.start, methods=["POST"]),
            Route("/visits/{id}/{step}", site.page),
            Route("/visits/{id}/{step}", site.act, methods=["POST"]),
            Route("/admin", site.admin),
            Route("/admin", site.log_in, methods=["POST"]),
            Route("/admin/visits/{id}", site.visit),
            Route("/admin/visits/{id}/page/{step}", site.page_again),
            Route("/admin/visits/{id}/{file}", site.file),
            Route("/admin/{file}", site.all_files),
        ],
        middleware=[Middleware(Guard)],
        exception_handlers={Refused: site.refused, HTTPException: site.refused},
        lifespan=lifespan,
    )


class _Site:
    """The endpoints."""

    def __init__(self, shop: Shop, token: str | None) -> None:
        self._shop, self._token = shop, token
        self._forms = Forms()
        self._pass = hmac.new(secrets.token_bytes(32), b"admin", hashlib.sha256).hexdigest()

    # ---------------------------------------------------------------- shopping
    async def start_page(self, request: Request, trouble: str = "", status: int = 200) -> Response:
        """Show the start page with the choice of a task."""
        return self._form_page(
            request,
            "start.html.j2",
            status,
            title="Go shopping",
            splits={split: self._shop.num_tasks(split) for split in SPLITS},
            chosen_split=self._shop.split,
            chosen_task="" if self._shop.task is None else self._shop.task,
            max_steps=self._shop.max_steps,
            trouble=trouble,
        )

    async def start(self, request: Request) -> Response:
        """Start a visit and redirect to its first page."""
        fields = await self._forms.read(request)
        number = fields.get("task", "").strip()
        try:
            if number and not _is_number(number):
                raise Refused(400, "A task is a number.")
            session = self._shop.start(fields.get("split", ""), int(number) if number else None)
        except (AgentGymFlowError, Refused) as error:
            return await self.start_page(request, str(error), 400)
        return _to(session)

    async def page(self, request: Request) -> Response:
        """Show the current page of a visit, regardless of the step in the address."""
        session = self._session(request)
        step = len(session.episode.turns)
        past = "" if _step(request) == step else "past"
        note = _NOTES.get(past or request.query_params.get("note", ""), "")
        if session.record.trouble:
            note = f"This visit could not be saved: {session.record.trouble}. {note}"
        visitor = self._forms.visitor(request)
        context = _shop_context(session.record, session.env, step) | {
            "site": Site(
                form_action=f"/visits/{session.record.id}/{step}",
                form_fields={FORM_KEY: self._forms.key(visitor)},
                inert=session.over,
                focus=session.episode.turns[-1].action[len("click[") : -1] if step else "",
            ),
            "note": note,
            "state": session.record.state.value,
        }
        response = _render("shop.html.j2", **context)
        self._forms.remember(response, visitor)
        return response

    async def act(self, request: Request) -> Response:
        """Apply the action of a form if its page is current, and redirect to the resulting page."""
        fields = await self._forms.read(request)
        session, step = self._session(request), _step(request)  # no other request runs from here on
        if session.over or step != len(session.episode.turns):
            return _to(session, step)
        if "search" in fields:
            words = " ".join(fields["search"].replace("[", " ").replace("]", " ").split())
            if not words:
                return _to(session, note="words")
            action = f"search[{words}]"
        else:
            offered = {_as_sent(name): name for name in session.env.game.clickables() if name != "search"}
            name = offered.get(_as_sent(fields.get("click", "")))
            if name is None:
                return _to(session, note="gone")
            action = f"click[{name}]"
        self._shop.step(session, action)
        return _to(session)

    def _session(self, request: Request) -> ShopSession:
        session = self._shop.session(request.path_params["id"])
        if session is None:
            known = self._shop.record(request.path_params["id"]) is not None
            raise Refused(
                410 if known else 404, "This visit is no longer open." if known else "There is no such visit."
            )
        return session

    # ---------------------------------------------------------------- looking back
    async def admin(self, request: Request) -> Response:
        """Show the list of all visits, or the form for the token."""
        if not self._admitted(request):
            return self._form_page(request, "login.html.j2", 401, title="All visits", trouble="")
        records = self._shop.records()
        bought = [record.score for record in records if record.score is not None]
        mean = math.fsum(bought) / len(bought) if bought else 0.0
        return _render("admin.html.j2", title="All visits", records=records, bought=bought, mean=mean)

    async def log_in(self, request: Request) -> Response:
        """Check the token and set the cookie."""
        fields = await self._forms.read(request)
        if self._token is None or not serving.same(fields.get("token", ""), self._token):
            return self._form_page(request, "login.html.j2", 403, title="All visits", trouble="That is not the token.")
        response = RedirectResponse("/admin", 303)
        response.set_cookie(ADMIN, self._pass, httponly=True, samesite="lax", path="/admin")
        return response

    async def visit(self, request: Request) -> Response:
        """Show the actions of a visit."""
        record = self._record(request)
        return _render("visit.html.j2", title=f"Visit {record.id}", record=record, actions=self._actions(record))

    async def page_again(self, request: Request) -> Response:
        """Show a page of a visit as the person saw it, by replaying the actions."""
        record, step = self._record(request), _step(request)
        actions = self._actions(record)
        if step > len(actions):
            raise Refused(404, "This visit has fewer pages.")
        env = self._shop.step_again(record, actions[:step])
        context = _shop_context(record, env, step) | {"site": Site(inert=True), "note": "", "state": "looking back"}
        return _render("shop.html.j2", **context)

    async def file(self, request: Request) -> Response:
        """Send a file of a visit."""
        record, ending = self._record(request), _ending(request)
        return Response(self._shop.lines(record, ending), media_type="application/x-ndjson")

    async def all_files(self, request: Request) -> Response:
        """Send the logs of all finished visits, earliest first."""
        self._check_admitted(request)
        ending = _ending(request)
        over = [record for record in reversed(self._shop.records()) if record.state is not SessionState.SHOPPING]
        lines = "".join(self._shop.lines(record, ending) for record in over)
        return Response(lines, media_type="application/x-ndjson")

    def _actions(self, record: Record) -> list[str]:
        try:
            return self._shop.actions(record)
        except BadLog as error:
            raise Refused(410, f"The log of this visit cannot be read: {error}") from None

    def _record(self, request: Request) -> Record:
        self._check_admitted(request)
        record = self._shop.record(request.path_params["id"])
        if record is None:
            raise Refused(404, "There is no such visit since the shop was opened.")
        return record

    def _admitted(self, request: Request) -> bool:
        return self._token is None or serving.same(request.cookies.get(ADMIN, ""), self._pass)

    def _check_admitted(self, request: Request) -> None:
        if not self._admitted(request):
            raise Refused(401, "Open the list of all visits first; it asks for the token.")

    # ---------------------------------------------------------------- the rest
    async def static(self, request: Request) -> Response:
        """Send a static file."""
        name = request.path_params["name"]
        if name not in STATIC:
            raise Refused(404, "There is no such file.")
        content = (files("agentgym_flow.envs.webshop.site") / "templates" / name).read_bytes()
        return Response(content, media_type=STATIC[name])

    async def refused(self, request: Request, error: Exception) -> Response:
        """Show why a request was refused."""
        if isinstance(error, Refused):
            status, reason = error.status, error.reason
        else:
            assert isinstance(error, HTTPException)  # no other exception is registered
            status, reason = error.status_code, "There is no such page."
        return _render("problem.html.j2", status, title="That did not work", reason=reason)

    def _form_page(self, request: Request, template: str, status: int, **context: Any) -> Response:
        visitor = self._forms.visitor(request)
        response = _render(template, status, key=self._forms.key(visitor), **context)
        self._forms.remember(response, visitor)
        return response


def _shop_context(record: Record, env: WebShopEnv, step: int) -> dict[str, Any]:
    game, score = env.game, env.last_score
    parts = [
        part._replace(node=with_cents(part.node)) if part.kind is TextKind.PRICE else part for part in elements(game)
    ]
    return page_context(game, parts) | {
        "title": f"{_TITLES[game.page]}, step {step} - WebShop",
        "record": record,
        "step": step,
        "max_steps": env.max_steps,
        "found": bool(game.found),
        "query": game.query,
        "sub_page": game.sub_page,
        "card": None if score is None else score_card(game, score),
    }


def _to(session: ShopSession, step: int | None = None, note: str = "") -> Response:
    """Return a redirect to a page of a visit, by default the current one."""
    place = len(session.episode.turns) if step is None else step
    return RedirectResponse(f"/visits/{session.record.id}/{place}{f'?note={note}' if note else ''}", 303)


def _step(request: Request) -> int:
    """Return the step in the address. Raises `Refused` if it is not a valid number."""
    text: str = request.path_params["step"]
    if not _is_number(text):
        raise Refused(404, "There is no such page.")
    return int(text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS


def _as_sent(name: str) -> str:
    """Return a name as a browser sends it in a form: with normalised line breaks, and NUL replaced."""
    return name.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")


def _ending(request: Request) -> str:
    ending = f".{request.path_params['file']}"
    if ending not in (EPISODE, PAGES):
        raise Refused(404, "There is no such file.")
    return ending


def _render(template: str, status: int = 200, **context: Any) -> Response:
    page = _templates().get_template(template).render(key_name=FORM_KEY, **context)
    return Response(page, status, media_type="text/html")


@cache
def _templates() -> jinja2.Environment:
    templates = environment(jinja2.PackageLoader("agentgym_flow.envs.webshop.site"))
    templates.filters["with_cents"] = with_cents
    return templates


PATIENCE = 3
"""Seconds to finish pending requests when the server stops."""

CONNECTIONS = 256
"""The largest number of simultaneous connections."""


def serve(
    shop: Shop, *, port: int = 8000, token: str | None = None, on_ready: Callable[[str], object] = lambda address: None
) -> None:
    """Serve the shop until the process is interrupted; then close the shop, which logs unfinished visits.

    Args:
        shop: the shop.
        port: the port; 0 selects a free one.
        token: the token for the list of all visits.
        on_ready: called with the address when the server accepts requests.

    Raises:
        BadSetting: the port is in use or not permitted.
        KeyboardInterrupt: the user pressed Ctrl-C.
    """
    running = serving.server(create_app(shop, token), patience=PATIENCE, connections=CONNECTIONS)
    try:
        serving.run(running, port, on_ready=lambda address: on_ready(f"{address}/"))
    finally:
        shop.close()  # needed if the server was interrupted before it started


_AMOUNT = re.compile(r"\$(\d+(?:\.\d+)?(?:e[+-]\d+)?)")


def with_cents(text: str) -> str:
    """Return the text with two decimals in every amount: `$49.0` becomes `$49.00`."""
    return _AMOUNT.sub(lambda amount: f"${float(amount[1]):.2f}", text)
