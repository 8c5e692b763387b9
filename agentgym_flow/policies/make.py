"""From a description such as `expert` or `mymodule:my_policy` to a policy."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

from agentgym_flow._util.importing import find_modules_here, imported
from agentgym_flow.errors import BadPolicy, BadSetting, MissingExtra, UnknownEnvironment, UnknownOption, UnknownPolicy
from agentgym_flow.policies.base import AsyncPolicy, ExpertPolicy, FunctionPolicy, Policy, RandomPolicy
from agentgym_flow.policies.openai_chat import OpenAIPolicy

FORMS = ("random", "expert", "scripted", "openai:MODEL@URL", "hf:FOLDER", "module:callable")
"""The descriptions that `make_policy` understands."""

LOCAL = "agentgym_flow.training.local_policy", "local_policy"
"""The module and the function that make a policy of weights in a folder; PyTorch is imported only then."""


def make_policy(description: str, env_id: str, **settings: Any) -> Policy | AsyncPolicy:
    """Return the policy that `description` names, for the environment `env_id`.

    Args:
        description: one of `FORMS`.
        env_id: the environment it will play; decides the script and the prompt.
        settings: keyword arguments of `OpenAIPolicy`, or of `agentgym_flow.training.local_policy.local_policy` for
            `hf:`; the other forms take none.

    Raises:
        UnknownPolicy: no policy is named so; the closest name is proposed.
        UnknownEnvironment: `scripted`, and the environment has none; or the environment does not exist.
        BadPolicy: `module:callable` is not a policy and does not make one.
        BadSetting: settings for a policy that takes none, or a value out of its range.
        UnknownOption: a setting that the policy does not have; the closest one is proposed.
        MissingExtra: the `openai` package is not installed, or PyTorch for `hf:`.
    """
    kind, colon, rest = description.partition(":")
    if kind == "openai" and colon:
        model, at, url = rest.rpartition("@")
        if not (model and at and url):
            example = "openai:my-model@http://localhost:8000/v1"
            raise UnknownPolicy(f"{description!r} needs a model and a URL: openai:MODEL@URL, for example {example}")
        _check_settings(OpenAIPolicy, description, settings)
        return OpenAIPolicy(model, url, env_id, **settings)
    if kind == "hf" and rest:
        make = _local()
        _check_settings(make, description, settings)
        policy: Policy = make(rest, env_id, **settings)
        return policy
    if settings:
        raise BadSetting(f"policy {description!r} takes no settings, got: {', '.join(sorted(settings))}")
    if description == "random":
        return RandomPolicy()
    if description == "expert":
        return ExpertPolicy()
    if description == "scripted":
        return scripted(env_id)
    if colon and kind and rest:
        find_modules_here()
        return load_policy(description)
    raise UnknownPolicy.among(description, FORMS)


def _check_settings(make: Callable[..., Any], description: str, settings: Mapping[str, Any]) -> None:
    """Raise `UnknownOption` for a setting that is not a keyword argument of `make`."""
    known = [p.name for p in inspect.signature(make).parameters.values() if p.kind is p.KEYWORD_ONLY]
    for name in settings:
        if name not in known:
            raise UnknownOption.among(name, known, f"These are the settings of {description!r}.")


def _local() -> Callable[..., Any]:
    for package in ("torch", "transformers"):
        if find_spec(package) is None:
            raise MissingExtra.of(package, "train")
    module, name = LOCAL
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found


def scripted(env_id: str) -> Policy | AsyncPolicy:
    """Return the scripted, non-privileged policy of an environment. Raises `UnknownEnvironment` where there is none."""
    from agentgym_flow.envs import text_env_class  # here, because scripts import policies

    script = text_env_class(env_id).script
    if script is None:
        raise UnknownEnvironment(f"{env_id} has no scripted policy: its class names one in `script`, as module:class")
    return load_policy(script)


def load_policy(path: str) -> Policy | AsyncPolicy:
    """Return the policy that `module:callable` names.

    A function with one required argument is taken for a function from views to moves. Any other function, and a class,
    is called without arguments and returns the policy.

    Raises:
        UnknownPolicy: the module or the attribute does not exist; the closest name is proposed.
        BadPolicy: what was found is not callable, or does not make a policy.
    """
    found = imported(path, UnknownPolicy)
    if not callable(found):
        raise BadPolicy(f"{path} is a {type(found).__name__}; a policy is named by a class or a function")
    required = [p.name for p in inspect.signature(found).parameters.values() if _is_required(p)]
    if not required:
        return _made(found(), path)
    if isinstance(found, type) or len(required) > 1:
        raise BadPolicy(
            f"{path} needs the arguments {', '.join(required)}; name a function that gives them and returns the policy"
        )
    return FunctionPolicy(path, found)


def _is_required(parameter: inspect.Parameter) -> bool:
    variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return parameter.default is parameter.empty and not variadic


def _made(policy: object, path: str) -> Policy | AsyncPolicy:
    if isinstance(policy, Policy | AsyncPolicy):
        return policy
    raise BadPolicy(
        f"{path}() returned a {type(policy).__name__}, which has no `name` and `act(views)` or `respond(view)`"
    )
