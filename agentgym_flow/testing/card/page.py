"""Render the report card as one self-contained HTML page."""

from __future__ import annotations

import json

from markupsafe import Markup

from agentgym_flow import __version__
from agentgym_flow.report.rendering import security_policy, source, templates
from agentgym_flow.testing.card.findings import SECTIONS, WORDS, ReportCard

_PACKAGE = "agentgym_flow.testing.card"


def render_card(card: ReportCard) -> str:
    """Return the page of a report card."""
    style = source("page.css", "card.css", package=_PACKAGE)
    sections = [(name, heading, card.section(name)) for name, heading in SECTIONS.items()]
    return (
        templates(_PACKAGE)
        .get_template("card.html.j2")
        .render(
            card=card,
            kwargs=json.dumps(dict(card.kwargs)),
            sections=[section for section in sections if section[2]],
            to_fix=[finding for finding in card.findings if finding.status in ("fail", "unfinished")],
            words=WORDS,
            policy=security_policy(style),
            style=Markup(style),
            version=__version__,
        )
    )
