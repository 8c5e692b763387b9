"""The first part of a report card: import and create the environment of the command line.

It runs as `python -m agentgym_flow.testing.card.made`, and works on the base install.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agentgym_flow.core import import_environments, module_of
from agentgym_flow.envs import make_text_env, text_arguments, text_env_class
from agentgym_flow.errors import AgentGymFlowError, BadModule
from agentgym_flow.testing.card import Finding, Status, ValidationRequest, serve

REFUSED = "refused"
"""The only figure if the command line is wrong: the error message."""

_FIX = "Importing the module and calling the constructor with its default arguments must not raise or wait."


def plan(request: ValidationRequest) -> list[Finding]:
    """Return the planned check, as a finding without a result."""
    return [_finding("unfinished", fix=_FIX)]


def work(request: ValidationRequest) -> Iterator[Finding]:
    """Yield whether the environment can be created, with the figures `env_id`, `kwargs`, `modules` for other parts.

    The request contains the arguments of the command line: `env_id` may be short or name a module, and `modules` is
    empty, because importing `imports` is part of the check.
    """
    try:
        for module in request.imports:
            import_environments(module)
        env_id = text_arguments.full_id(request.env_id)
        kwargs = text_arguments.env_settings(env_id, list(request.pairs))
        make_text_env(env_id, **kwargs).close()
    except BadModule as error:
        yield _finding("fail", str(error), _FIX)
    except AgentGymFlowError as error:
        yield _finding("fail", str(error), **{REFUSED: str(error)})
    except (Exception, SystemExit) as error:  # an exit with status 0 would look like a success
        yield _finding("fail", f"{type(error).__name__}: {error}", _FIX)
    else:
        module = module_of(env_id) or text_env_class(env_id).__module__
        own = module.startswith("agentgym_flow.envs.")
        yield _finding("ok", env_id=env_id, kwargs=kwargs, modules=[] if own else [module])


def _finding(status: Status, said: str = "", fix: str = "", **figures: Any) -> Finding:
    return Finding("contract", "made", "The environment can be made", status, "", said, fix, True, figures)


if __name__ == "__main__":
    serve(plan, work)
