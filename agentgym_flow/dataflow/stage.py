"""What a worker needs to play a stream: environments, the policies that act in them, and models for their weights.

Workers get it as JSON: the settings of the run, and the files of tokenizer and model (their shape, without weights).
"""

from __future__ import annotations

import base64
import copy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
import yaml  # type: ignore[import-untyped]
from torch.overrides import TorchFunctionMode

from agentgym_flow.core import TextEnv
from agentgym_flow.dataflow.config import AGAIN
from agentgym_flow.dataflow.records import PARTIAL
from agentgym_flow.errors import BadData, BadSetting
from agentgym_flow.generation import has_adapter
from agentgym_flow.policies import PolicyInput
from agentgym_flow.prompts import PromptTemplate
from agentgym_flow.training.config import SERVERS, TRANSFORMERS, AgentConfig, Configs
from agentgym_flow.training.config_file import parse_configs, resolved
from agentgym_flow.training.group_source import stop_on
from agentgym_flow.training.models import POLICY, REFERENCE, is_adapter
from agentgym_flow.training.policy import AsyncModelPolicy, context_of, make_generator

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_CONFIG = "run.yaml"


@dataclass(frozen=True)
class Actor:
    """What a worker needs for one policy.

    Attributes:
        model: a model of its shape; its weights are never read, and may be on the device `meta`.
        tokenizer: of the model.
        template: the prompt template.
        args: the settings of its training, which include those of sampling.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    template: PromptTemplate
    args: AgentConfig

    def policy(
        self,
        generator: str = TRANSFORMERS,
        folder: Path = Path(),
        acts_as: str | None = None,
        *,
        weights: bool = True,
    ) -> AsyncModelPolicy:
        """Return the policy on a copy of the model, whose weights are still to be loaded.

        Args:
            generator: the backend that samples, as in the settings of training.
            folder: for transferring weights to it.
            acts_as: the name of the policy if several share the episodes.
            weights: whether there is memory for weights; without, the policy is for prompts and parsing only.

        Raises as `make_generator`, and `BadSetting` if the generator reads less than the trainer expects.
        """
        # Without the check, a build for CUDA returns CUDA even if there is no visible GPU.
        device = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
        if generator.startswith(SERVERS):
            device = torch.device("cpu")  # the copy only turns deltas into weights
        model = copy.deepcopy(self.model).eval()
        if weights:
            allocate(model, device)
        runs = make_generator(self.args, model, self.tokenizer, folder, None, generator)
        wanted = min(context_of(model), self.args.vllm_max_model_length or sys.maxsize)
        found = getattr(runs, "context", wanted)
        if found < wanted:  # the trainer would take the end of an episode whose context is full for a forgery
            raise BadSetting(
                f"generator {generator} reads {found} tokens, and the run's model {wanted}: train with "
                f"--vllm_max_model_length {found}, or start the generator with more"
            )
        return AsyncModelPolicy(
            model,
            self.tokenizer,
            self.template,
            generator=runs,
            temperature=self.args.temperature,
            max_new_tokens=self.args.max_completion_length or 1,
            layout=self.args.layout,
            acts_as=acts_as,
        )


@dataclass(frozen=True)
class Stage:
    """What a worker needs for a stream.

    Attributes:
        make_env: returns a new environment.
        actors: the policies that act in it, by name.
        route: returns the name of the policy that acts on a policy input.
        stop: returns whether an episode ends early at a policy input; None for whole episodes.
        keep: the keys of `info` in workers' reports (see `wire`); None if workers send no reports.
        partial: whether episodes go on with newer weights that arrive between their turns.
    """

    make_env: Callable[[], TextEnv]
    actors: Mapping[str, Actor]
    route: Callable[[PolicyInput], str]
    stop: Callable[[PolicyInput], bool] | None = None
    keep: tuple[str, ...] | None = None
    partial: bool = False


# ---------------------------------------------------------------- weights
def allocate(model: PreTrainedModel, device: torch.device) -> None:
    """Give all weights of a model new memory on a device, with undefined values, and move its buffers there.

    Tied weights stay tied. Weights keep `requires_grad`: without it, PyTorch chooses kernels that round differently.
    """
    made: dict[int, torch.nn.Parameter] = {}
    for module in model.modules():
        for name, weight in module._parameters.items():
            if weight is not None:
                if id(weight) not in made:
                    empty = torch.empty_like(weight, device=device)
                    made[id(weight)] = torch.nn.Parameter(empty, weight.requires_grad)
                module._parameters[name] = made[id(weight)]
    model.to(device)


def state_to_send(model: PreTrainedModel, dtype: torch.dtype | None = None) -> dict[str, torch.Tensor]:
    """Return the weights of a model on the CPU, tied ones once, floating-point ones as `dtype`.

    The frozen adapter of the KL term is left out: only the trainer has it.
    """
    state: dict[str, torch.Tensor] = {}
    seen: set[tuple[int, torch.Size, tuple[int, ...]]] = set()
    for name, weight in model.state_dict().items():
        place = weight.data_ptr(), weight.shape, weight.stride()
        if place in seen or (".lora_" in name and f".{REFERENCE}." in name):
            continue
        seen.add(place)
        state[name] = weight.to("cpu", dtype if weight.is_floating_point() else None)
    return state


def load_state(model: PreTrainedModel, state: Mapping[str, torch.Tensor]) -> None:
    """Load what `state_to_send` returned for a model of the same shape. Raises `BadData` if the shape differs."""
    names = state_to_send(model).keys()
    if names != state.keys():
        odd = sorted(names ^ state.keys())[0]
        raise BadData(f"the weights are not those of the worker's model: {odd} is only in one of them")
    try:
        model.load_state_dict(dict(state), strict=False)
    except RuntimeError as error:
        raise BadData(f"the weights are not those of the worker's model: {str(error).splitlines()[-1]}") from None


# ---------------------------------------------------------------- JSON
def actor_setup(
    configs: Configs,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    dtype: torch.dtype | None = None,
) -> dict[str, Any]:
    """Return plain data from which a worker makes an `Actor` and its environments.

    `dtype` is that of the weights that will be sent, see `state_to_send`.
    """
    with TemporaryDirectory() as name:
        folder = Path(name)
        base = model.get_base_model() if has_adapter(model) else model
        base.config.save_pretrained(folder)
        base.generation_config.save_pretrained(folder)
        if has_adapter(model):
            model.peft_config[POLICY].save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        files = {
            file.name: base64.b64encode(file.read_bytes()).decode("ascii")
            for file in sorted(folder.iterdir())  # folders have templates for other purposes
            if file.is_file()
        }
    sent = None if dtype is None else str(dtype).removeprefix("torch.")
    return {"config": resolved(configs), "files": files, "dtype": sent}


KEEP, REPORTS = "keep", "reports"
"""What a trainer says of its policy besides `actor_setup`: the keys of `info` that it reads, and whether it trusts
workers' reports on some episodes."""

_HERE = ("ddp_backend", "deepspeed", "log_rollouts", "output_dir", "report_to", "run_name", "threads", "use_cpu")
"""Settings for the trainer's own machine."""


def stage_of(setup: Mapping[str, Any]) -> Stage:
    """Return the stage for a setup from `Flow.describe`. Its models have no memory for weights yet.

    Raises `BadSetting` or `BadData` if settings or files, or data that they name, do not work on this machine. For a
    model or tokenizer the error names the policy.
    """
    actors, make_env, stop = {}, None, None
    for policy in setup["policies"]:
        of_policy = setup["actors"][policy]
        with _setup_folder(of_policy) as folder:
            configs = parse_configs(["--config", str(folder / _CONFIG)])
            try:
                actors[policy] = _actor(configs, folder, of_policy["dtype"])
            except (OSError, ValueError, ImportError, KeyError) as error:  # of Transformers
                raise BadSetting(
                    f"the model or the tokenizer of policy {policy!r} cannot be made here ({str(error).splitlines()[0]}"
                    "): install the versions of Transformers and tokenizers that its trainer has"
                ) from error
        make_env, stop = configs[0].make_env, stop_on(configs[2].stop_when)
    if make_env is None:
        raise BadData("a stream without policies cannot be played")
    told = [setup["actors"][policy] for policy in setup["policies"]]
    keep = tuple(dict.fromkeys(key for one in told for key in one.get(KEEP, ())))
    route = turn_router(setup["turns"] or setup["policies"])
    reported = keep if any(one.get(REPORTS) for one in told) else None
    return Stage(make_env, actors, route, stop, reported, setup.get(PARTIAL, False))


def turn_router(turns: Sequence[str]) -> Callable[[PolicyInput], str]:
    """Return a function that names the acting policy: `turns` one by one, and the last one in all further turns.

    If the last one is `AGAIN`, the list begins again.
    """
    if turns[-1] == AGAIN:
        return lambda policy_input: turns[len(policy_input.episode.turns) % (len(turns) - 1)]
    return lambda policy_input: turns[min(len(policy_input.episode.turns), len(turns) - 1)]


class _EmptyOnMeta(TorchFunctionMode):
    """Makes `torch.empty`, with which modules make their weights, take no memory, in this thread alone.

    Accelerate's `init_empty_weights` would change the modules that other threads make at the same time, and for ever if
    two threads overlap.
    """

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function."""
        return function(*args, **{**(kwargs or {}), **({"device": "meta"} if function is torch.empty else {})})


def _actor(configs: Configs, folder: Path, dtype: str | None) -> Actor:
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    run, _, agent = configs
    # Random weights would take seconds. Buffers are real: those that are not sent have the values of every such model.
    # All of it draws, also on no device, and a trainer may make actors too.
    with torch.random.fork_rng(devices=[]), _EmptyOnMeta():
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=getattr(torch, run.dtype))
        if (folder / "generation_config.json").is_file():
            model.generation_config = type(model.generation_config).from_pretrained(folder)
        if is_adapter(str(folder)):
            from peft import PeftConfig, get_peft_model

            model = get_peft_model(model, PeftConfig.from_pretrained(folder), adapter_name=POLICY)
    (model.get_base_model() if has_adapter(model) else model).tie_weights()
    if dtype is not None:  # deltas need exactly the weights that were sent; other buffers keep their precision
        sent = model.state_dict().keys()
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            if name in sent and tensor.is_floating_point():
                tensor.data = tensor.data.to(getattr(torch, dtype))
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    return Actor(model, tokenizer, run.make_template(), agent)


@contextmanager
def _setup_folder(setup: Mapping[str, Any]) -> Iterator[Path]:
    """Yield a temporary folder with the files and the settings of a setup."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        for file, content in setup["files"].items():
            if Path(file).name != file or file.startswith("."):
                raise BadData(f"a setup cannot contain the file {file!r:.80}")
            (folder / file).write_bytes(base64.b64decode(content))
        settings = {key: value for key, value in setup["config"].items() if key not in _HERE}
        (folder / _CONFIG).write_text(yaml.safe_dump(settings), "utf-8")
        yield folder
