"""Policies: protocols, policies without training (random, expert, scripted, chat models, your own), `make_policy`."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any, cast

from agentgym_flow._util.importing import find_modules_here, imported
from agentgym_flow.core import text_env_class
from agentgym_flow.episodes import PolicyOutput
from agentgym_flow.errors import BadPolicy, BadSetting, MissingExtra, UnknownEnvironment, UnknownOption, UnknownPolicy
from agentgym_flow.policies.base import (
    AsyncPolicy,
    ExpertPolicy,
    FunctionPolicy,
    Policy,
    PolicyInput,
    RandomPolicy,
    ask,
)
from agentgym_flow.policies.openai_chat import OpenAIPolicy

__all__ = [
    "AsyncPolicy",
    "ExpertPolicy",
    "FunctionPolicy",
    "OpenAIPolicy",
    "Policy",
    "PolicyInput",
    "PolicyOutput",
    "RandomPolicy",
    "ask",
    "make_policy",
]


FORMS = ("random", "expert", "scripted", "openai:MODEL@URL", "hf:FOLDER", "module:callable")
"""The descriptions that `make_policy` understands."""

LOCAL = "agentgym_flow.training.local_policy", "local_policy"
"""The module and the function that make a policy from weights in a folder. The module imports PyTorch."""


def make_policy(description: str, env_id: str, **settings: Any) -> Policy | AsyncPolicy:
    """Return the policy that `description` names, for the environment `env_id`.

    Args:
        description: one of `FORMS`.
        env_id: the environment to play, which determines the script and the prompt.
        settings: keyword arguments of `OpenAIPolicy`, or of `agentgym_flow.training.local_policy.local_policy` for
            `hf:`. Other policies have no settings.

    Raises:
        UnknownPolicy: there is no such policy; the message suggests the closest one.
        UnknownEnvironment: the environment does not exist, or has no scripted policy.
        BadPolicy: `module:callable` is not a policy and does not make one.
        BadSetting: the policy has no settings, or a value is out of range.
        UnknownOption: the policy has no such setting; the message suggests the closest one.
        MissingExtra: PyTorch, for `hf:`, is not installed.
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
        make = _local_policy()
        _check_settings(make, description, settings)
        return make(rest, env_id, **settings)
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


def _local_policy() -> Callable[..., Policy]:
    for package in ("torch", "transformers"):
        if find_spec(package) is None:
            raise MissingExtra.of(package, "train")
    module, name = LOCAL
    return cast("Callable[..., Policy]", getattr(importlib.import_module(module), name))


def scripted(env_id: str) -> Policy | AsyncPolicy:
    """Return the scripted policy of an environment, which uses no hidden data. Raises `UnknownEnvironment` if none."""
    script = text_env_class(env_id).card.script
    if script is None:
        raise UnknownEnvironment(f"{env_id} has no scripted policy: its class names one in `script`, as module:class")
    return load_policy(script)


def load_policy(path: str) -> Policy | AsyncPolicy:
    """Return the policy that `module:callable` names.

    A function with one required argument is used as a function from policy inputs to policy outputs. A class or any
    other function is called without arguments, and must return the policy.

    Raises:
        UnknownPolicy: the module or the attribute does not exist; the message suggests the closest name.
        BadPolicy: the attribute is not callable, or does not make a policy.
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
        f"{path}() returned a {type(policy).__name__}, which has no `name` and `act(inputs)` or `respond(policy_input)`"
    )
