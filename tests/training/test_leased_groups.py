"""A trainer whose episodes are played by workers: the same weights as one that plays them itself."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import torch

from agentgym_flow.dataflow import rollout
from agentgym_flow.dataflow.batches import LeasedGroups
from agentgym_flow.dataflow.batches.inbox import Receiver
from agentgym_flow.dataflow.bookkeeping.manager import Manager
from agentgym_flow.dataflow.config import FlowConfig
from agentgym_flow.dataflow.records import Commit, CommitVerdict, Exchanged
from agentgym_flow.dataflow.rollout import RolloutService
from agentgym_flow.dataflow.stage import actor_setup, stage_of
from agentgym_flow.episodes import Episode
from agentgym_flow.errors import BadSetting, TrainingFailed
from agentgym_flow.generation import has_adapter
from agentgym_flow.prompts import CONVERSATION, template_for
from agentgym_flow.training.config import AgentConfig
from agentgym_flow.training.group_source import GroupBatch, OwnRollout
from agentgym_flow.training.models import with_lora
from agentgym_flow.training.run_config import RunConfig, WarmStartConfig
from agentgym_flow.training.trainer import AgentTrainer
from tests.dataflow.test_wire import TALKER, byte_tokenizer, mixed
from tests.training.conftest import SOKOBAN

Trainers = Callable[..., AgentTrainer]
TALK = {"think": False, "tags_required": False, "history": 1}
"""The settings of the template `text` for a trainer with conversations."""

pytestmark = pytest.mark.usefixtures("narrow")


def weights_of(trainer: AgentTrainer) -> dict[str, torch.Tensor]:
    return {name: weight.clone() for name, weight in trainer.model.state_dict().items()}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def actor(trainer: AgentTrainer) -> dict[str, Any]:
    """What a run with these settings tells its workers, besides what depends on the dataflow."""
    said: dict[str, Any] = {}
    if trainer.args.layout == CONVERSATION:
        said |= {"template": "text", "template_settings": TALK}
    if has_adapter(trainer.model):
        base = next(weight for weight in trainer.model.parameters() if not weight.requires_grad)
        said |= {"model": "some", "lora": True, "dtype": str(base.dtype).removeprefix("torch.")}
    run = RunConfig(env_kwargs={"size": 6, "boxes": 1, "min_pushes": 1}, **said)
    return actor_setup(
        (run, WarmStartConfig(warm_start_levels=0), trainer.args), trainer.model, trainer.policy.tokenizer
    )


@contextmanager
def workers(
    manager: Manager, trainers: Mapping[str, AgentTrainer], turns: list[str], count: int, **settings: Any
) -> Iterator[None]:
    """Threads that play. They share a stage: to make models draws from random numbers that the trainer uses as well."""
    told = {}
    for name, trainer in trainers.items():
        assert isinstance(trainer.source, LeasedGroups)
        told[name] = json.loads(json.dumps(trainer.source._setup()["actor"]))
    stage = stage_of({"policies": [*trainers], "turns": turns, "actors": told})
    services = [RolloutService(manager, name=f"worker {n}", num_envs=5, **settings) for n in range(count)]
    with pytest.MonkeyPatch.context() as patched, together([service.run for service in services]):
        patched.setattr(rollout, "stage_of", lambda _: stage)
        try:
            yield
        finally:
            for service in services:
                service.stop()


@contextmanager
def together(works: Sequence[Callable[[], object]]) -> Iterator[None]:
    """Within, and until they are done, all of these run in threads; what one raises is raised in the end."""
    with ThreadPoolExecutor(len(works)) as threads:
        running = [threads.submit(work) for work in works]
        yield
    for one in running:
        one.result()


def own(trainer: AgentTrainer) -> OwnRollout:
    assert isinstance(trainer.source, OwnRollout)
    return trainer.source


def trained_by_workers(
    trainer: AgentTrainer,
    *,
    staleness: int = 0,
    count: int = 2,
    manager: Manager | None = None,
    worker: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Manager:
    manager = manager or Manager()
    config = FlowConfig(staleness=staleness, **settings)
    trainer.source = LeasedGroups(own(trainer), manager, partial(actor, trainer), config)
    with workers(manager, {"policy": trainer}, [], count, **(worker or {})):
        trainer.train()
    return manager


def test_without_staleness_it_is_the_plain_trainer(make_trainer: Trainers, make_warm: Any) -> None:
    settings = {"max_steps": 6, "logging_steps": 6}
    plain = make_trainer(model=make_warm(), **settings)
    plain.train()
    leased = make_trainer(model=make_warm(), **settings)
    manager = trained_by_workers(leased)
    assert same(weights_of(plain), weights_of(leased))
    assert not same(weights_of(plain), make_trainer(model=make_warm()).model.state_dict())
    (stream,) = manager.status()["streams"].values()
    assert stream["states"]["used"] + stream["states"]["trained"] == 3 * 16


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_adapters_too_are_those_of_the_plain_trainer(
    make_trainer: Trainers, make_warm: Any, dtype: torch.dtype
) -> None:
    """To make a worker's model draws no number that the trainer draws: it shuffles its rows."""

    def adapted() -> tuple[Any, Any]:
        model, tokenizer = make_warm()
        return with_lora(model.to(dtype), rank=2, alpha=4, seed=0), tokenizer

    found = []
    for train in (AgentTrainer.train, trained_by_workers):
        trainer = make_trainer(model=adapted(), max_steps=4, muon_learning_rate=None)
        train(trainer)
        found.append(weights_of(trainer))
    assert same(*found)
    assert not same(found[0], adapted()[0].state_dict())


def test_to_make_a_stage_draws_no_numbers(make_trainer: Trainers, make_warm: Any) -> None:
    """A trainer of a team makes the actors of all policies, and a resumed one makes them again."""
    model, tokenizer = make_warm()
    trainer = make_trainer(model=(with_lora(model, rank=2, alpha=4, seed=0), tokenizer))
    told = {"policies": ["policy"], "turns": [], "actors": {"policy": actor(trainer)}}
    before = torch.get_rng_state()
    for weights in (True, False):
        stage_of(told).actors["policy"].policy(weights=weights)
    assert torch.get_rng_state().equal(before)


def test_a_lost_episode_is_left_out_of_its_group(
    make_trainer: Trainers, make_warm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If all are lost, the run ends with the reason."""
    play = RolloutService._play_episode
    failing: Callable[[Any], bool] = lambda slot: slot.id == (0, 0, 0)  # noqa: E731

    async def play_some(service: RolloutService, playing: Any, *more: Any) -> str | None:
        return "it is broken" if failing(playing.lease.slot) else await play(service, playing, *more)

    monkeypatch.setattr(RolloutService, "_play_episode", play_some)
    manager = trained_by_workers(make_trainer(model=make_warm(), max_steps=4), max_attempts=2)
    (stream,) = manager.status()["streams"].values()
    assert stream["counts"]["lost"] == 1
    assert sum(stream["policies"]["policy"]["ages"].values()) == 2 * 16 - 1  # trained on
    failing = lambda slot: True  # noqa: E731
    with pytest.raises(TrainingFailed, match="raised in all 16 episodes of a batch: LostEpisode: it is broken"):
        trained_by_workers(make_trainer(model=make_warm()), max_attempts=1)
    # Operators drop what ended alike, and other groups are played in its place. Some of those are lost as well.
    chosen = {"order": "ready", "staleness": 1, "operators": ["drop_alike"], "max_attempts": 1}
    with pytest.raises(TrainingFailed, match=r"raised in all \d+ episodes of a batch: LostEpisode: it is broken"):
        trained_by_workers(make_trainer(model=make_warm()), manager=Manager(deadline=5.0), **chosen)


def test_adapters_are_sent_without_those_of_the_reference(make_trainer: Trainers, make_warm: Any) -> None:
    """With a KL term and LoRA, the trainer's model has a second adapter, and those of workers have not."""
    model, tokenizer = make_warm()
    adapted = with_lora(model, rank=2, alpha=4, seed=0), tokenizer
    trainer = make_trainer(model=adapted, beta=0.1, max_steps=4, muon_learning_rate=None)
    manager = trained_by_workers(trainer)
    (stream,) = manager.status()["streams"].values()
    assert stream["counts"].get("failed", 0) == 0
    gaps = [record["sampling_gap"] for record in trainer.state.log_history if "sampling_gap" in record]
    assert gaps
    assert max(gaps) < 1e-5  # workers had the weights of the trainer


@pytest.mark.heavy
@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"replay_share": 0.5}, marks=pytest.mark.nightly),
        {"dynamic_sampling": True, "max_sampling_rounds": 2},
    ],
)
def test_tasks_that_depend_on_what_was_played_change_no_weight(
    make_trainer: Trainers, make_warm: Any, settings: dict[str, Any]
) -> None:
    plain = make_trainer(model=make_warm(), max_steps=6, **settings)
    plain.train()
    leased = make_trainer(model=make_warm(), max_steps=6, **settings)
    trained_by_workers(leased)
    assert same(weights_of(plain), weights_of(leased))


def test_fixed_order_does_not_depend_on_the_workers(make_trainer: Trainers, make_warm: Any) -> None:
    found = []
    for count in (1, 3):
        trainer = make_trainer(model=make_warm(), max_steps=6)
        manager = trained_by_workers(trainer, staleness=2, count=count)
        found.append(weights_of(trainer))
        (stream,) = manager.status()["streams"].values()
        assert stream["counts"]["admitted"] == stream["counts"]["committed"] == 3 * 16, "nothing is played in vain"
        assert stream["policies"]["policy"]["finished"]
    assert same(*found)


class Forging:
    """A manager as a worker calls it that says something untrue of every other episode."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self.forged = 0
        self._seen = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._manager, name)

    def commit(self, worker: str, commits: list[Commit]) -> list[CommitVerdict]:
        sent = []
        for one in commits:
            self._seen += 1
            if self._seen % 2:
                line, *rest = one.payload.decode().split("\n")
                row = json.loads(line)
                self._forge(row)
                one = one._replace(payload="\n".join([json.dumps(row), *rest]).encode())
            sent.append(one)
        return self._manager.commit(worker, sent)

    def exchange(self, worker: str, commits: list[Commit], *others: Any) -> Exchanged:
        verdicts = self.commit(worker, commits)
        return self._manager.exchange(worker, [], *others)._replace(verdicts=verdicts)

    def _forge(self, row: dict[str, Any]) -> None:
        self.forged += 1
        if self.forged % 3 == 0:
            row["rewards"][-1] += 10.0
        elif self.forged % 3 == 1:
            row["actions"][0] = "up" if row["actions"][0] == "down" else "down"
        else:
            row["digest"] = row["digest"][::-1]  # of the observations


@pytest.mark.heavy
def test_a_worker_that_forges_half_of_its_episodes_changes_no_bit(
    make_trainer: Trainers, make_warm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = make_trainer(model=make_warm(), max_steps=6)
    trained_by_workers(honest)
    forgers: list[Forging] = []

    class Cheat(RolloutService):
        def __init__(self, flow: Any, *, name: str, **settings: Any) -> None:
            if name == "worker 0":
                flow = Forging(flow)
                forgers.append(flow)
            super().__init__(flow, name=name, **settings)

    monkeypatch.setattr("test_leased_groups.RolloutService", Cheat)
    cheated = make_trainer(model=make_warm(), max_steps=6)
    manager = trained_by_workers(cheated)
    (stream,) = manager.status()["streams"].values()
    assert stream["counts"]["rejected"] == forgers[0].forged > 3, "all that came before the end, and nothing else"
    assert same(weights_of(honest), weights_of(cheated))


@pytest.fixture
def trusted(monkeypatch: pytest.MonkeyPatch) -> list[Episode]:
    """The episodes that trainers trust their workers on."""
    found: list[Episode] = []
    trust = Receiver.trust

    def noted(*given: Any, **named: Any) -> Episode:
        found.append(trust(*given, **named))
        return found[-1]

    monkeypatch.setattr(Receiver, "trust", noted)
    return found


@pytest.mark.heavy
def test_what_is_believed_of_honest_workers_is_true(
    make_trainer: Trainers, make_warm: Any, trusted: list[Episode]
) -> None:
    found = []
    for check in (1.0, 1e-9):
        trainer = make_trainer(model=make_warm(), max_steps=6)
        assert not trusted
        manager = trained_by_workers(trainer, check=check)
        (stream,) = manager.status()["streams"].values()
        assert "rejected" not in stream["counts"]
        found.append(weights_of(trainer))
    assert len(trusted) == 3 * 16
    assert same(*found)


def test_after_one_lie_everything_is_stepped_again(make_trainer: Trainers, make_warm: Any) -> None:
    """Nothing is trained on that was believed when it came, and turned out to be forged before it was used."""
    trainer = make_trainer(model=make_warm(), max_steps=2)
    manager = Manager()
    trainer.source = LeasedGroups(own(trainer), manager, partial(actor, trainer), FlowConfig(staleness=0, check=0.5))
    source = trainer.source
    drawn = iter([0.9] * 15 + [0.1])  # the last of 16 is the first to be stepped again

    class Chance:
        def random(self) -> float:
            return next(drawn)

    def take(batch: int, version: int) -> Any:
        taken = LeasedGroups.take(source, batch, version)
        assert source._inbox is not None
        assert source._inbox.check == 1.0
        for episode in [episode for group in taken.groups for episode in group]:
            assert episode.total_reward < 5 or episode.success, "a forged reward was trained on"
        return taken

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(source, "take", take)
        patched.setattr("agentgym_flow.dataflow.batches.inbox.random.SystemRandom", Chance)
        patched.setattr("test_leased_groups.RolloutService", forging_reward_service())
        with workers(manager, {"policy": trainer}, [], 1):
            trainer.train()
    (stream,) = manager.status()["streams"].values()
    assert stream["counts"]["rejected"] == 16


def forging_reward_service() -> type[RolloutService]:
    """A worker that adds to the reward of every episode that it plays the first time."""

    class Rewarding(Forging):
        def commit(self, worker: str, commits: list[Commit]) -> list[CommitVerdict]:
            sent = [one if one.held.attempt > 1 else self._more(one) for one in commits]
            return self._manager.commit(worker, sent)

        def _more(self, one: Commit) -> Commit:
            line, *rest = one.payload.decode().split("\n")
            row = json.loads(line)
            row["rewards"][-1] += 10.0
            return one._replace(payload="\n".join([json.dumps(row), *rest]).encode())

    class Cheat(RolloutService):
        def __init__(self, flow: Any, **settings: Any) -> None:
            super().__init__(Rewarding(flow), **settings)

    return Cheat


@pytest.mark.heavy
def test_ready_order_trains_on_what_is_complete(make_trainer: Trainers, make_warm: Any) -> None:
    trainer = make_trainer(model=make_warm(), max_steps=8, logging_steps=2)
    manager = trained_by_workers(trainer, order="ready", staleness=1)
    (stream,) = manager.status()["streams"].values()
    assert stream["policies"]["policy"]["ages"].keys() <= {"0", "1"}
    assert sum(stream["policies"]["policy"]["ages"].values()) == 4 * 16
    assert stream["counts"]["admitted"] - stream["states"]["used"] < 16, "less than a batch is played in vain"
    assert max(row.get("staleness_max", 0) for row in trainer.state.log_history) <= 2  # steps, two to an update


@pytest.mark.heavy
@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"tasks": "greso"}, marks=pytest.mark.nightly),
        pytest.param({"tasks": {"filter_solved": {"threshold": 0.5}}}, marks=pytest.mark.nightly),
        pytest.param({"operators": ["relabel", "keep_signal"]}, marks=pytest.mark.nightly),
        {"operators": ["drop_alike"], "replay": {"share": 0.5}, "tasks": "greso"},
        pytest.param(
            {"order": "ready", "first": "staleness", "operators": ["relabel"], "replay": {"share": 0.25}},
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_data_algorithms_do_not_depend_on_the_number_of_workers(
    make_trainer: Trainers, make_warm: Any, settings: dict[str, Any]
) -> None:
    found = []
    for count in (1, 2):
        trainer = make_trainer(model=make_warm(), max_steps=8, logging_steps=2)
        manager = trained_by_workers(trainer, staleness=1, count=count, **settings)
        found.append(weights_of(trainer))
        states = manager.status()["streams"]["policy"]["states"]
        share = settings.get("replay", {}).get("share", 0)
        assert states["used"] + states["dropped"] >= (4 * 16) * (1 - share)
        logged = [row for row in trainer.state.log_history if "turns" in row]
        assert bool(share) == any(row.get("dataflow/replayed_groups", 0) for row in logged)
    if settings.get("order") != "ready":
        assert same(*found)


def test_trainers_that_plan_other_episodes_are_told_when_they_open(make_trainer: Trainers) -> None:
    """Each would reject what the other has planned: for ever, if the environments differ."""
    config = FlowConfig(turns=["a", "b"], check=0.5)
    told = []
    for name, settings in (("a", {}), ("b", {"max_steps": 4})):
        trainer = make_trainer(**settings)
        source = LeasedGroups(own(trainer), None, partial(actor, trainer), config, policy=name)
        assert trainer.policy.acts_as == name
        told.append(source._setup())
    manager = Manager()
    manager.open("a+b", "a", 0, told[0], "first")
    with pytest.raises(BadSetting, match=r"stream a\+b has batches=1, but this trainer has 2"):
        manager.open("a+b", "b", 0, told[1], "second")
    for name, other in (("seed", 1), ("groups_per_batch", 8), ("env_kwargs", {"size": 7})):
        with pytest.raises(BadSetting, match=rf"stream a\+b has {name}="):
            manager.open("a+b", "b", 0, {**told[0], name: other}, "second")
    assert manager.open("a+b", "b", 0, told[0], "second").epoch == 1


def test_a_report_has_what_any_trainer_reads(make_trainer: Trainers) -> None:
    of = actor(make_trainer())
    for reports, expected in ((True, ("workflow", "checked")), (False, None)):
        actors = {"a": {**of, "keep": ["workflow"], "reports": reports}, "b": {**of, "keep": ["checked", "workflow"]}}
        stage = stage_of({"policies": ["a", "b"], "turns": ["a", "b", "..."], "actors": actors})
        assert stage.keep == expected


def test_a_worker_names_the_policy_whose_model_it_cannot_make(make_trainer: Trainers) -> None:
    def stage(**files: bytes) -> None:
        sent = {**of["files"], **{name: base64.b64encode(text).decode() for name, text in files.items()}}
        stage_of({"policies": ["a", "b"], "turns": ["a", "b"], "actors": {"a": of, "b": {**of, "files": sent}}})

    of = actor(make_trainer())
    stage()
    for files in ({"config.json": b'{"model_type": "of next year"}'}, {"tokenizer.json": b"{}"}):
        with pytest.raises(BadSetting, match="the model or the tokenizer of policy 'b' cannot be made here"):
            stage(**files)


@pytest.mark.heavy
@pytest.mark.parametrize("lockstep", [False, True])
def test_two_policies_take_turns_and_each_is_trained(make_trainer: Trainers, make_warm: Any, lockstep: bool) -> None:
    manager = Manager()
    config = FlowConfig(staleness=2, turns=["first", "second"], lockstep=lockstep)
    trainers = {name: make_trainer(model=make_warm(), max_steps=6, logging_steps=2) for name in config.turns}
    ahead = []  # how many batches `second` was behind, each time `first` got a batch
    first_got_two = Event()

    class Noting(LeasedGroups):
        def take(self, batch: int, version: int) -> GroupBatch:
            if self._policy == "second":
                taken = super().take(batch, version)
                first_got_two.wait(0.5 if lockstep else 60)  # before it trains, so that `first` gets ahead where it may
                return taken
            taken = super().take(batch, version)
            if batch == 1:
                first_got_two.set()
            (stream,) = manager.status()["streams"].values()
            ahead.append(batch - stream["policies"]["second"]["newest"]["update"])
            return taken

    for name, trainer in trainers.items():
        trainer.acts_as = name
        trainer.source = Noting(own(trainer), manager, partial(actor, trainer), config, policy=name)
    with workers(manager, trainers, config.turns, 2), together([one.train for one in trainers.values()]):
        pass
    (stream,) = manager.status()["streams"].values()
    assert [policy["done"] for policy in stream["policies"].values()] == [3, 3]
    assert stream["states"]["used"] == 3 * 16
    assert (max(ahead) <= 0) == lockstep
    # Trainers of one process share random numbers, so no two runs of this are equal.
    logs = [[row for row in trainer.state.log_history if "turns" in row] for trainer in trainers.values()]
    for of_first, of_second in zip(*logs, strict=True):
        assert of_first["turns"] == 16, "one turn an episode"
        assert of_second["turns"] > 16
        assert of_second["episodes"] == of_first["episodes"]
    assert not same(*map(weights_of, trainers.values()))


@pytest.mark.heavy
def test_a_policy_whose_team_needs_no_turn_of_it_goes_on(make_trainer: Trainers, make_warm: Any) -> None:
    """Others may end all episodes of a batch before its first turn. It then trains on nothing."""
    manager, config = Manager(deadline=60.0), FlowConfig(staleness=1, turns=[*["first"] * 20, "second"])
    few = {"num_generations": 2, "per_device_train_batch_size": 4, "steps_per_generation": 1, "logging_steps": 1}
    trainers = {name: make_trainer(model=make_warm(), **few) for name in ("first", "second")}
    before = weights_of(trainers["second"])
    for name, trainer in trainers.items():
        trainer.acts_as = name
        trainer.source = LeasedGroups(own(trainer), manager, partial(actor, trainer), config, policy=name)
    with workers(manager, trainers, config.turns, 1), together([one.train for one in trainers.values()]):
        pass
    (stream,) = manager.status()["streams"].values()
    assert [policy["done"] for policy in stream["policies"].values()] == [2, 2]
    assert [row["turns"] for row in trainers["second"].state.log_history if "turns" in row] == [0, 0]
    assert same(before, weights_of(trainers["second"]))


@pytest.mark.heavy
@pytest.mark.parametrize("check", [1.0, 1e-9])
def test_two_models_with_nothing_in_common_are_trained(
    make_trainer: Trainers, make_warm: Any, make_env: Any, tmp_path: Path, trusted: list[Episode], check: float
) -> None:
    """One has a word for each cell and trains with GRPO, the other talks in bytes and trains with RLOO."""
    model = mixed().policies[TALKER].model
    args = AgentConfig(
        output_dir=str(tmp_path), layout=CONVERSATION, max_completion_length=5, max_steps=2, credit="rloo",
        num_generations=2, per_device_train_batch_size=4, steps_per_generation=1, merge_prompts=False,
        learning_rate=1e-3, muon_learning_rate=None, seed=0, logging_steps=1, entropy_coef=0.1,
    )  # fmt: skip
    talks = AgentTrainer(copy.deepcopy(model), args, byte_tokenizer(), template_for(SOKOBAN, "text", TALK), make_env)
    few = {"num_generations": 2, "per_device_train_batch_size": 4, "steps_per_generation": 1, "entropy_coef": 0.1}
    trainers = {"words": make_trainer(model=make_warm(), **few), "bytes": talks}
    before = {name: weights_of(one) for name, one in trainers.items()}
    manager, config = Manager(), FlowConfig(staleness=2, turns=["words", "bytes", "..."], check=check)
    seen: dict[str, set[int]] = {}
    for name, trainer in trainers.items():
        trainer.acts_as = name
        trainer.source = LeasedGroups(own(trainer), manager, partial(actor, trainer), config, policy=name)
    with workers(manager, trainers, config.turns, 2), together([one.train for one in trainers.values()]):
        pass
    (stream,) = manager.status()["streams"].values()
    assert [policy["done"] for policy in stream["policies"].values()] == [2, 2]
    assert stream["counts"]["committed"] == 2 * 4
    assert "rejected" not in stream["counts"]
    assert len(trusted) == (0 if check == 1 else 2 * 2 * 4), "by each of the trainers"
    for name, trainer in trainers.items():
        assert not same(before[name], weights_of(trainer))
        own_turns = [turn for group in trainer.groups for turn in group.turns if turn.output.policy == name]
        assert own_turns
        seen[name] = {token for turn in own_turns for token in turn.output.prompt_ids or ()}
        assert max(seen[name]) < trainer.model.config.vocab_size
    assert max(seen["bytes"]) > trainers["words"].model.config.vocab_size


@pytest.mark.heavy
def test_ready_order_replaces_what_operators_leave_out(make_trainer: Trainers, make_warm: Any) -> None:
    trainer = make_trainer(model=make_warm(), max_steps=4, logging_steps=2)
    manager = trained_by_workers(trainer, order="ready", operators=["drop_alike"])
    (stream,) = manager.status()["streams"].values()
    assert stream["policies"]["policy"]["done"] == 2
    assert stream["policies"]["policy"]["ages"] == {"0": 2 * 16}
