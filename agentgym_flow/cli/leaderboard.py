"""`agentgym-flow leaderboard` and `submit`: tracks, submissions, and the checks that CI runs."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentgym_flow._util.files import check_new
from agentgym_flow._util.values import decode_file
from agentgym_flow.cli import season
from agentgym_flow.cli.console import note, say, stdout
from agentgym_flow.cli.options import (
    Attempts,
    Commands,
    DataPaths,
    EnvArgs,
    Force,
    Jobs,
    Most,
    Root,
    Seed,
    Split,
    data_paths,
)
from agentgym_flow.envs import text_arguments
from agentgym_flow.errors import BadSubmission
from agentgym_flow.leaderboard.files import ROOT, SITE, TRACKS
from agentgym_flow.leaderboard.submission import ABOUT, MODEL_CONFIG, TRAINING, WEIGHTS
from agentgym_flow.prompts import TURN

if TYPE_CHECKING:
    from agentgym_flow.leaderboard.ci import Decision
    from agentgym_flow.leaderboard.reproduce import MakePolicy
    from agentgym_flow.leaderboard.submission import Folder
    from agentgym_flow.leaderboard.track import Track
    from agentgym_flow.policies import Policy


SECRET = "AGENTGYM_FLOW_SEASON_SECRET"
"""The environment variable with the season's secret."""

ENOUGH = 0.95
"""The share of turns that must agree. It is below 1 because the numerics of inference engines differ slightly."""

app = Commands(help="Create tracks, check submissions, and publish leaderboards.", no_args_is_help=True)
app.add_typer(season.app, name="season")


@app.command()
def ci(
    base: Annotated[str, typer.Argument(metavar="BASE")],
    head: Annotated[str, typer.Argument(metavar="HEAD")],
    repository: Annotated[Path, typer.Option(file_okay=False)] = Path(),
    out: Annotated[Path | None, typer.Option(file_okay=False)] = None,
    data: DataPaths = None,
    jobs: Jobs = None,
) -> None:
    """Decide whether a branch may be merged: it must add one valid submission and change nothing else.

    Exits with status 1 if the branch must not be merged. Files of the branch are never checked out, imported or run,
    and the tracks are read from BASE.

    Options:
        base: The commit or branch to merge into.
        head: The commit or branch with the submission.
        repository: The git repository.
        out: Write verdict.json and summary.md into this folder.
    """
    from agentgym_flow.leaderboard.ci import Repository, decide

    decision = decide(Repository(repository), base, head, data=data_paths(data), jobs=jobs, make_policy=_policy())
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "summary.md").write_text(decision.summary(), "utf-8")
        if decision.verdict is not None:
            decision.verdict.write(out / "verdict.json")
    say(decision.summary().rstrip())
    if not decision.ok:
        raise typer.Exit(1)


@app.command()
def check(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", file_okay=False)],
    root: Root = Path(ROOT),
    data: DataPaths = None,
    jobs: Jobs = None,
) -> None:
    """Run the checks of CI on one submission. Exits with status 1 if it is rejected.

    Options:
        folder: The folder of a submission.
    """
    from agentgym_flow.leaderboard.ci import Decision, check_name
    from agentgym_flow.leaderboard.judge import judge

    place = folder.resolve().parent.name, folder.resolve().name
    try:
        check_name(place[1][11:])
    except BadSubmission as error:
        _show(Decision(refused=str(error)))
    verdict = judge(folder, place, root, data=data_paths(data), jobs=jobs, make_policy=_policy())
    _show(Decision(verdict))


@app.command()
def publish(
    root: Root = Path(ROOT),
    data: DataPaths = None,
    jobs: Jobs = None,
) -> None:
    """Compute the verdict of every merged entry that has none yet. CI runs this command after a merge.

    Submitted weights are evaluated on fresh tasks, which are drawn with the secret in AGENTGYM_FLOW_SEASON_SECRET.
    Without the secret they play rehearsal tasks, which are public.
    """
    from agentgym_flow.leaderboard.publish import publish as publish_all

    secret = os.environ.get(SECRET, "")
    where = data_paths(data)
    for verdict in publish_all(root, data=where, jobs=jobs, make_policy=_policy(), secret=secret):
        say(f"{verdict.submission}: {verdict.summary()}")


@app.command()
def render(
    root: Root = Path(ROOT),
    check: Annotated[bool, typer.Option("--check")] = False,
    jobs: Jobs = None,
) -> None:
    """Render the leaderboard site: self-contained pages. The same input files give the same bytes.

    Options:
        check: Write nothing, and exit with status 1 if the rendered site is out of date.
    """
    from agentgym_flow.leaderboard import site

    if not check:
        site.render(root, jobs=jobs)
        say(str(root / SITE / "index.html"))
    elif name := site.first_difference(root, jobs=jobs):
        say(f"{name} differs: run agentgym-flow leaderboard render and commit it")
        raise typer.Exit(1)


@app.command()
def compare(
    first: Annotated[str, typer.Argument(metavar="A")],
    second: Annotated[str, typer.Argument(metavar="B")],
    most: Most = 20,
    root: Root = Path(ROOT),
) -> None:
    """Compare two entries task by task: the mean difference, its interval, a paired test, and the tasks that differ.

    Options:
        first: An entry: TRACK/DATE-NAME.
        second: Another entry of the same track.
    """
    from agentgym_flow.leaderboard.publish import compared

    found = compared(root, first, second, most)
    say(f"{first} - {second}: {found.comparison.summary()}")
    for task, one in zip(found.tasks, found.comparison.tasks, strict=True):
        kind = f" ({task.type})" if task.type else ""
        say(f"task {task.number}{kind}: {one.difference:+.2f}")


@app.command()
def rescore(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", file_okay=False)],
    model: Annotated[str, typer.Option()],
    share: float = 0.02,
    seed: str = "",
    dtype: str = "float32",
    date: str | None = None,
    root: Root = Path(ROOT),
    data: DataPaths = None,
) -> None:
    """Recompute the log-probabilities of a share of an attested entry's completions with the open weights.

    Exits with status 1 if fewer than 95 % of the turns agree.

    Options:
        folder: The folder of an attested entry.
        model: The open weights: a Hugging Face folder or a downloaded model.
        share: The share of all turns to score, drawn at random.
        seed: The seed that draws the turns. Choose one that the submitter could not know.
        dtype: The data type of the weights, such as bfloat16.
        date: The day of the evaluation, such as 2026-11-27, if the chat template reads it.
    """
    from agentgym_flow.leaderboard.submission import LOG, Submission
    from agentgym_flow.leaderboard.track import Track
    from agentgym_flow.prompts import template_for
    from agentgym_flow.training.conversation import checked_date, write_date
    from agentgym_flow.training.local_policy import rescore as score_again
    from agentgym_flow.training.models import load_model, quiet

    quiet()
    about = Submission.parse((folder / ABOUT).read_bytes())
    board = Track.read(root / TRACKS / f"{about.track}.json")
    template = template_for(board.env_id, about.prompt)
    loaded, tokenizer = load_model(model, template, dtype=dtype)
    write_date(tokenizer, checked_date(date))
    where = data_paths(data)
    found = score_again(folder / LOG, board, loaded, tokenizer, template, share=share, seed=seed, data=where)
    say(
        f"{found.agreed} of {found.turns} turns agree with {model}; the mean difference is {found.difference:.3f} "
        f"nats a token; {found.other_tokens} turns have other tokens"
    )
    if found.agreed < ENOUGH * found.turns:
        raise typer.Exit(1)


@app.command()
def track(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    env: Annotated[str, typer.Option(metavar="ENV")],
    title: Annotated[str, typer.Option()],
    tasks: Annotated[int | None, typer.Option(min=1)] = None,
    env_arg: EnvArgs = None,
    split: Split = "test",
    attempts: Attempts = 1,
    seed: Seed = 0,
    rules: str = "open",
    prompt: list[str] | None = None,
    metric: str = "success",
    root: Root = Path(ROOT),
    force: Force = False,
) -> None:
    """Create a track: list the tasks of a split with their keys, as this version of the package generates them.

    Options:
        name: The name of the track, such as sokoban-10x10-4.
        env: An id such as Sokoban-v0.
        title: The title on the leaderboard, one line.
        tasks: Only the first N tasks of the split.
        rules: The rules: open, same data, zero-shot or ten minutes.
        prompt: An allowed prompt template: compact, choice, text or numeric. Repeatable.
        metric: The metric that ranks entries: success or score.
    """
    from agentgym_flow.leaderboard.track import make_track

    env_id = text_arguments.full_id(env)
    made = make_track(
        env_id,
        name,
        title,
        tasks=tasks,
        kwargs=text_arguments.env_settings(env_id, env_arg),
        split=split,
        attempts=attempts,
        seed=seed,
        rules=rules,
        prompts=tuple(prompt or ("compact", "choice", "text")),
        metric=metric,
    )
    path = root / TRACKS / f"{name}.json"
    check_new(path, replace=force)
    made.write(path)
    say(f"{path}: {len(made.tasks)} tasks, {made.episodes} episodes")


def submit(
    run: Annotated[Path, typer.Argument(metavar="RUN")],
    name: Annotated[str, typer.Option()],
    title: Annotated[str, typer.Option()],
    author: Annotated[list[str], typer.Option()],
    command: Annotated[str, typer.Option()],
    prompt: Annotated[str, typer.Option()],
    trained_in: list[str] | None = None,
    extra_data: str = "",
    badge: str = "replayed",
    policy: Path | None = None,
    link: str | None = None,
    model: str | None = None,
    greedy: Annotated[bool, typer.Option("--greedy")] = False,
    layout: str = "turn",
    half: Annotated[bool, typer.Option("--half")] = False,
    core_seconds: Annotated[float | None, typer.Option(min=0)] = None,
    source: Annotated[Path | None, typer.Option(dir_okay=False)] = None,
    training: Annotated[Path | None, typer.Option(dir_okay=False)] = None,
    root: Root = Path(ROOT),
    data: DataPaths = None,
    jobs: Jobs = None,
) -> None:
    """Create the folder of a submission and run the checks of CI on it. Exits with status 1 if it is rejected.

    Options:
        run: The folder that `evaluate --track ... --out RUN` wrote.
        name: The name of the entry: lower case, with hyphens.
        title: The title on the leaderboard, one line.
        author: An author. Repeatable.
        command: The command that was run, so that others can repeat it.
        prompt: The prompt template of the policy, such as compact or text.
        trained_in: An environment that the policy was trained in. Repeatable.
        extra_data: Other data that the policy was trained on.
        badge: The badge to apply for: reproduced, attested or replayed.
        policy: For reproduced: the folder with config.json and model.safetensors.
        link: A link to more information, https://...
        model: The name of the model.
        greedy: Submitted weights choose the most likely token.
        layout: The prompt layout of submitted weights: turn or conversation.
        half: Store the weights in half precision.
        core_seconds: The cost of training, in core-seconds.
        source: The source file of the training. The site shows it; it is never run.
        training: For tracks where CI runs the training: the YAML file of its settings.
    """
    from agentgym_flow.leaderboard.ci import Decision, check_name
    from agentgym_flow.leaderboard.judge import judge
    from agentgym_flow.leaderboard.submission import make_submission

    check_name(name)
    about: dict[str, Any] = {"name": name, "badge": badge, "prompt": prompt, "title": title, "authors": author}
    about |= {"command": command, "training": {"environments": trained_in or [], "data": extra_data}}
    about["training"] |= {} if core_seconds is None else {"core_seconds": core_seconds}
    about |= {} if link is None else {"link": link}
    about |= {} if model is None else {"model": {"name": model}}
    about |= {"sampling": {"greedy": True}} if greedy else {}
    about |= {"layout": layout} if layout != TURN else {}
    place = make_submission(run, about, root, policy=policy, half=half, source=source, training=training)
    where = data_paths(data)
    verdict = judge(place, (place.parent.name, place.name), root, data=where, jobs=jobs, make_policy=_policy())
    say(str(place))
    if not verdict.accepted:
        note("correct the problem below, then run: agentgym-flow leaderboard check FOLDER")
    _show(Decision(verdict))
    stdout().print("Commit this folder alone on a branch, and open a pull request.")


def _policy() -> MakePolicy | None:
    """Return a function that makes a policy from submitted weights; None if PyTorch is not installed."""
    if find_spec("torch") is None or find_spec("transformers") is None:
        return None

    def make(entry: Folder, track: Track) -> Policy:
        from agentgym_flow.leaderboard.reproduce import settings_of, train
        from agentgym_flow.training.local_policy import submitted_policy

        def of(config: Path, weights: Path) -> Policy:
            shape = decode_file(config.read_bytes(), BadSubmission, config.name)
            about = entry.about
            return submitted_policy(
                track.env_id,
                about.prompt,
                shape,
                weights.read_bytes(),
                temperature=about.sampling.temperature or 1.0,
                greedy=about.sampling.greedy,
                layout=about.layout,
            )

        if TRAINING not in entry.names:
            return of(entry.path / MODEL_CONFIG, entry.path / WEIGHTS)
        with TemporaryDirectory(prefix="agentgym_flow-") as scratch:
            trained = train(settings_of((entry.path / TRAINING).read_bytes()), track, Path(scratch))
            return of(trained / Path(MODEL_CONFIG).name, trained / Path(WEIGHTS).name)

    return make


def _show(decision: Decision) -> None:
    """Print a decision. Exits with status 1 if the submission is rejected."""
    say(decision.summary().rstrip())
    if not decision.ok:
        raise typer.Exit(1)
