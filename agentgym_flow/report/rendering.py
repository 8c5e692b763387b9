"""Common parts of all pictures and pages: templates, style sheets, scripts and the Content-Security-Policy."""

from __future__ import annotations

import base64
import hashlib
from functools import lru_cache
from typing import Any

import jinja2
from markupsafe import Markup

from agentgym_flow._util.values import printable
from agentgym_flow.report import graph

REPORT = "agentgym_flow.report"
"""The package with the templates of reports."""


@lru_cache(maxsize=8)
def templates(package: str = REPORT) -> jinja2.Environment:
    """Return the templates of a package, with those of reports as a fallback. Text is escaped and made printable."""

    def finalize(value: Any) -> Any:
        return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(name) for name in dict.fromkeys((package, REPORT))]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals["star"] = graph.star
    return environment


def source(*names: str, package: str = REPORT) -> str:
    """Return the concatenated text of style sheets or scripts of a package."""
    environment = templates(package)
    assert environment.loader is not None
    return "".join(environment.loader.get_source(environment, name)[0] for name in names)


def security_policy(style: str, script: str = "") -> str:
    """Return a Content-Security-Policy that forbids all loading, and allows only this style and this script."""

    def allowed(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" if text else "'none'"

    own = f"style-src {allowed(style)}; script-src {allowed(script)}"
    return f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'"
