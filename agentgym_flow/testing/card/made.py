"""The first part of a report card: what the command line names is imported and made.

Run as `python -m agentgym_flow.testing.card.made`. Works on the base install.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agentgym_flow.cli import environments
from agentgym_flow.envs import make_text_env, text_env_class
from agentgym_flow.envs.plugins import import_environments, module_of
from agentgym_flow.errors import AgentGymFlowError
from agentgym_flow.testing.card.findings import Finding, Status
from agentgym_flow.testing.card.parts import ValidationRequest, serve

REFUSED = "refused"
"""The figure that holds the message if the command line is wrong; no other figure is there then."""

_MEND = "Importing the module and calling the constructor with its default arguments must not raise or wait."


def plan(request: ValidationRequest) -> list[Finding]:
    """Return what will be made, as a finding without a result."""
    return [_finding("unfinished", mend=_MEND)]


def work(request: ValidationRequest) -> Iterator[Finding]:
    """Yield whether the environment can be made; the figures are then `env_id`, `kwargs` and `modules` for other parts.

    The request has what the command line says: `env_id` may be short or name a module, and `modules` is empty, because
    importing `imports` is part of what is tried.
    """
    try:
        for module in request.imports:
            import_environments(module)
        env_id = environments.full_id(request.env_id)
        kwargs = environments.env_settings(env_id, list(request.pairs))
        make_text_env(env_id, **kwargs).close()
    except AgentGymFlowError as error:
        yield _finding("mend", str(error), **{REFUSED: str(error)})
    except (Exception, SystemExit) as error:  # an exit with status 0 would pass for a card on which all holds
        yield _finding("mend", f"{type(error).__name__}: {error}", _MEND)
    else:
        module = module_of(env_id) or text_env_class(env_id).__module__
        own = module.startswith("agentgym_flow.envs.")
        yield _finding("ok", env_id=env_id, kwargs=kwargs, modules=[] if own else [module])


def _finding(status: Status, said: str = "", mend: str = "", **figures: Any) -> Finding:
    return Finding("contract", "made", "The environment can be made", status, "", said, mend, True, figures)


if __name__ == "__main__":
    serve(plan, work)
