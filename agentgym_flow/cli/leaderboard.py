"""`agentgym-flow leaderboard` and `submit`: tracks, seasons, submissions, and the checks that CI runs."""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentgym_flow._util.files import check_new
from agentgym_flow._util.strict_json import decode_file
from agentgym_flow.cli import environments
from agentgym_flow.cli.console import note, say, stdout
from agentgym_flow.cli.options import Attempts, DataPaths, EnvArgs, Force, Jobs, Most, Seed, Split
from agentgym_flow.envs import text_arguments
from agentgym_flow.errors import BadSubmission
from agentgym_flow.leaderboard.files import ROOT, SITE, TRACKS
from agentgym_flow.leaderboard.season import new_season, season_file
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

app = typer.Typer(help="Create tracks, check submissions, and publish leaderboards.", no_args_is_help=True)
seasons = typer.Typer(help="Commit to a season, open it, close it, and check it.", no_args_is_help=True)
app.add_typer(seasons, name="season")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the season, such as s1.")]
Root = Annotated[Path, typer.Option(help="The folder with tracks, submissions and verdicts.", file_okay=False)]


@app.command()
def ci(
    base: Annotated[str, typer.Argument(metavar="BASE", help="The commit or branch to merge into.")],
    head: Annotated[str, typer.Argument(metavar="HEAD", help="The commit or branch with the submission.")],
    repository: Annotated[Path, typer.Option(help="The git repository.", file_okay=False)] = Path(),
    out: Annotated[
        Path | None, typer.Option(help="Write verdict.json and summary.md into this folder.", file_okay=False)
    ] = None,
    data: DataPaths = None,
    jobs: Jobs = None,
) -> None:
    """Decide whether a branch may be merged: it must add one valid submission and change nothing else.

    Exits with status 1 if the branch must not be merged. Files of the branch are never checked out, imported or run,
    and the tracks are read from BASE.
    """
    from agentgym_flow.leaderboard.ci import Repository, decide

    decision = decide(
        Repository(repository), base, head, data=environments.data_paths(data), jobs=jobs, make_policy=_policy()
    )
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
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of a submission.", file_okay=False)],
    root: Root = Path(ROOT),
    data: DataPaths = None,
    jobs: Jobs = None,
) -> None:
    """Run the checks of CI on one submission. Exits with status 1 if it is rejected."""
    from agentgym_flow.leaderboard.ci import Decision, check_name
    from agentgym_flow.leaderboard.judge import judge

    place = folder.resolve().parent.name, folder.resolve().name
    try:
        check_name(place[1][11:])
    except BadSubmission as error:
        _show(Decision(refused=str(error)))
    verdict = judge(folder, place, root, data=environments.data_paths(data), jobs=jobs, make_policy=_policy())
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
    where = environments.data_paths(data)
    for verdict in publish_all(root, data=where, jobs=jobs, make_policy=_policy(), secret=secret):
        say(f"{verdict.submission}: {verdict.summary()}")


@app.command()
def render(
    root: Root = Path(ROOT),
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing, and exit with status 1 if the rendered site is out of date.")
    ] = False,
    jobs: Jobs = None,
) -> None:
    """Render the leaderboard site: self-contained pages. The same input files give the same bytes."""
    from agentgym_flow.leaderboard import site

    if not check:
        site.render(root, jobs=jobs)
        say(str(root / SITE / "index.html"))
    elif name := site.first_difference(root, jobs=jobs):
        say(f"{name} differs: run agentgym-flow leaderboard render and commit it")
        raise typer.Exit(1)


@app.command()
def compare(
    first: Annotated[str, typer.Argument(metavar="A", help="An entry: TRACK/DATE-NAME.")],
    second: Annotated[str, typer.Argument(metavar="B", help="Another entry of the same track.")],
    most: Most = 20,
    root: Root = Path(ROOT),
) -> None:
    """Compare two entries task by task: the mean difference, its interval, a paired test, and the tasks that differ."""
    from agentgym_flow.leaderboard.publish import compared

    found = compared(root, first, second, most)
    say(f"{first} - {second}: {found.comparison.summary()}")
    for task, one in zip(found.tasks, found.comparison.tasks, strict=True):
        kind = f" ({task.type})" if task.type else ""
        say(f"task {task.number}{kind}: {one.difference:+.2f}")


@app.command()
def rescore(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of an attested entry.", file_okay=False)],
    model: Annotated[str, typer.Option(help="The open weights: a Hugging Face folder or a downloaded model.")],
    share: Annotated[float, typer.Option(help="The share of all turns to score, drawn at random.")] = 0.02,
    seed: Annotated[
        str, typer.Option(help="The seed that draws the turns. Choose one that the submitter could not know.")
    ] = "",
    dtype: Annotated[str, typer.Option(help="The data type of the weights, such as bfloat16.")] = "float32",
    date: Annotated[
        str | None, typer.Option(help="The day of the evaluation, such as 2026-11-27, if the chat template reads it.")
    ] = None,
    root: Root = Path(ROOT),
    data: DataPaths = None,
) -> None:
    """Recompute the log-probabilities of a share of an attested entry's completions with the open weights.

    Exits with status 1 if fewer than 95 % of the turns agree.
    """
    from agentgym_flow.leaderboard.submission import LOG, Submission
    from agentgym_flow.leaderboard.track import Track
    from agentgym_flow.prompts import template_for
    from agentgym_flow.training.chat_template import checked_date, write_date
    from agentgym_flow.training.rescore import rescore as score_again
    from agentgym_flow.training.run import load_model, quiet

    quiet()
    about = Submission.parse((folder / ABOUT).read_bytes())
    board = Track.read(root / TRACKS / f"{about.track}.json")
    template = template_for(board.env_id, about.prompt)
    loaded, tokenizer = load_model(model, template, dtype=dtype)
    write_date(tokenizer, checked_date(date))
    where = environments.data_paths(data)
    found = score_again(folder / LOG, board, loaded, tokenizer, template, share=share, seed=seed, data=where)
    say(
        f"{found.agreed} of {found.turns} turns agree with {model}; the mean difference is {found.difference:.3f} "
        f"nats a token; {found.other_tokens} turns have other tokens"
    )
    if found.agreed < ENOUGH * found.turns:
        raise typer.Exit(1)


@app.command()
def track(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the track, such as sokoban-10x10-4.")],
    env: Annotated[str, typer.Option(metavar="ENV", help="An id such as Sokoban-v0.")],
    title: Annotated[str, typer.Option(help="The title on the leaderboard, one line.")],
    tasks: Annotated[int | None, typer.Option(min=1, help="Only the first N tasks of the split.")] = None,
    env_arg: EnvArgs = None,
    split: Split = "test",
    attempts: Attempts = 1,
    seed: Seed = 0,
    rules: Annotated[str, typer.Option(help="The rules: open, same data, zero-shot or ten minutes.")] = "open",
    prompt: Annotated[
        list[str] | None,
        typer.Option(help="An allowed prompt template: compact, choice, text or numeric. Repeatable."),
    ] = None,
    metric: Annotated[str, typer.Option(help="The metric that ranks entries: success or score.")] = "success",
    root: Root = Path(ROOT),
    force: Force = False,
) -> None:
    """Create a track: list the tasks of a split with their keys, as this version of the package generates them."""
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
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder that `evaluate --track ... --out RUN` wrote.")],
    name: Annotated[str, typer.Option(help="The name of the entry: lower case, with hyphens.")],
    title: Annotated[str, typer.Option(help="The title on the leaderboard, one line.")],
    author: Annotated[list[str], typer.Option(help="An author. Repeatable.")],
    command: Annotated[str, typer.Option(help="The command that was run, so that others can repeat it.")],
    prompt: Annotated[str, typer.Option(help="The prompt template of the policy, such as compact or text.")],
    trained_in: Annotated[
        list[str] | None, typer.Option(help="An environment that the policy was trained in. Repeatable.")
    ] = None,
    extra_data: Annotated[str, typer.Option(help="Other data that the policy was trained on.")] = "",
    badge: Annotated[str, typer.Option(help="The badge to apply for: reproduced, attested or replayed.")] = "replayed",
    policy: Annotated[
        Path | None, typer.Option(help="For reproduced: the folder with config.json and model.safetensors.")
    ] = None,
    link: Annotated[str | None, typer.Option(help="A link to more information, https://...")] = None,
    model: Annotated[str | None, typer.Option(help="The name of the model.")] = None,
    greedy: Annotated[bool, typer.Option("--greedy", help="Submitted weights choose the most likely token.")] = False,
    layout: Annotated[str, typer.Option(help="The prompt layout of submitted weights: turn or conversation.")] = "turn",
    half: Annotated[bool, typer.Option("--half", help="Store the weights in half precision.")] = False,
    core_seconds: Annotated[float | None, typer.Option(min=0, help="The cost of training, in core-seconds.")] = None,
    source: Annotated[
        Path | None,
        typer.Option(help="The source file of the training. The site shows it; it is never run.", dir_okay=False),
    ] = None,
    training: Annotated[
        Path | None,
        typer.Option(help="For tracks where CI runs the training: the YAML file of its settings.", dir_okay=False),
    ] = None,
    root: Root = Path(ROOT),
    data: DataPaths = None,
    jobs: Jobs = None,
) -> None:
    """Create the folder of a submission and run the checks of CI on it. Exits with status 1 if it is rejected."""
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
    where = environments.data_paths(data)
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
        from agentgym_flow.training.submitted import submitted_policy

        def of(config: Path, weights: Path) -> Policy:
            shape = decode_file(config.read_bytes(), BadSubmission, config.name)
            about = entry.about
            return submitted_policy(
                track.env_id, about.prompt, shape, weights.read_bytes(), layout=about.layout, **about.sampling
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


@seasons.command()
def new(
    name: Name,
    opens: Annotated[str, typer.Option(metavar="DAY", help="The first day, year-month-day.")],
    closes: Annotated[str, typer.Option(metavar="DAY", help="The last day.")],
    keep: Annotated[Path, typer.Option(metavar="FILE", help="Write seed and secret to this file. Keep it private.")],
    root: Root = Path(ROOT),
) -> None:
    """Draw the seed and the secret of a season, and write their SHA-256 digests into the season's public file."""
    file = season_file(root, name)
    for path in (file, keep):
        if path.exists():
            raise FileExistsError(f"{path} already exists: a season can be created only once")
    season, seed, secret = new_season(name, opens, closes)
    descriptor = os.open(keep, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8") as private:
        private.write(json.dumps({"season": name, "seed": seed, "secret": secret}, indent=1) + "\n")
    season.write(file)
    say(f"{file}: commit it before the season opens")
    note(f"{keep} contains the seed, which opens the season, and the secret, which CI needs until the season closes")


@seasons.command("open")
def open_season(
    name: Name,
    seed: Annotated[str, typer.Option(help="The seed that the season was committed to.")] = "",
    root: Root = Path(ROOT),
) -> None:
    """Reveal the seed of a season, and create the task lists of its tracks from tracks.toml.

    Without --seed, create the missing tracks of an open season, for example after their official data was added.
    """
    from agentgym_flow.leaderboard.season import Season, made_tracks

    file = season_file(root, name)
    season = Season.read(file)
    if seed:
        season = season.opened(seed)
        season.write(file)
    for definition, track in made_tracks(root, season):
        if track is None:
            say(
                f"{definition.name}: not created; run agentgym-flow data add {definition.data} PATH, then run "
                "this command again"
            )
            continue
        path = root / TRACKS / f"{track.name}.json"
        if path.exists():
            say(f"{path}: already exists")
            continue
        track.write(path)
        say(f"{path}: {len(track.tasks)} tasks, {track.episodes} episodes")


@seasons.command()
def close(
    name: Name,
    secret: Annotated[str, typer.Option(help="The secret that the season was committed to.")],
    root: Root = Path(ROOT),
) -> None:
    """Reveal the secret of a season, so that anyone can check its fresh tasks."""
    from agentgym_flow.leaderboard.season import Season

    file = season_file(root, name)
    Season.read(file).closed(secret).write(file)
    say(f"{file}: the secret is revealed")


@seasons.command("check")
def check_season(name: Name, root: Root = Path(ROOT)) -> None:
    """Check that a season's tracks follow from its seed, and the tasks drawn for submitted weights from its secret.

    Exits with status 1 at the first mismatch.
    """
    from agentgym_flow.leaderboard.publish import audit

    wrong = audit(root, name)
    for line in wrong.checked:
        say(line)
    if wrong.problem:
        say(wrong.problem)
        raise typer.Exit(1)
