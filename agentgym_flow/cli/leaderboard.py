"""`agentgym-flow leaderboard` and `submit`: tracks, submissions, and the checks that CI runs."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentgym_flow._util.files import check_new
from agentgym_flow._util.values import decode_file, typed
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
    RequireSandbox,
    Root,
    Seed,
    Split,
    data_paths,
)
from agentgym_flow.envs import text_arguments
from agentgym_flow.errors import BadSetting, BadSubmission
from agentgym_flow.leaderboard.files import ROOT, SITE, SUBMISSIONS, TRACKS
from agentgym_flow.leaderboard.submission import ABOUT, ATTESTED
from agentgym_flow.prompts import TURN

if TYPE_CHECKING:
    from agentgym_flow.leaderboard.ci import Decision
    from agentgym_flow.leaderboard.reproduce import MakePolicy
    from agentgym_flow.leaderboard.submission import Folder
    from agentgym_flow.leaderboard.track import Track
    from agentgym_flow.policies import Policy

SECRETS = "AGENTGYM_FLOW_SEASON_SECRETS"
"""The environment variable with the secrets of the seasons, as a JSON object: season -> secret."""

app = Commands(help="Create tracks, check submissions, and publish leaderboards.", no_args_is_help=True)
app.add_typer(season.app, name="season")


@app.command()
def ci(
    base: Annotated[str, typer.Argument(metavar="BASE")],
    head: Annotated[str, typer.Argument(metavar="HEAD")],
    repository: Annotated[Path, typer.Option(file_okay=False)] = Path(),
    account: str | None = None,
    out: Annotated[Path | None, typer.Option(file_okay=False)] = None,
    data: DataPaths = None,
    jobs: Jobs = None,
    require_sandbox: RequireSandbox = False,
) -> None:
    """Decide whether a branch may be merged: it must add one valid submission and change nothing else.

    Exits with status 1 if the branch must not be merged. Files of the branch are never checked out, imported or run,
    and the tracks are read from BASE.

    Options:
        base: The commit or branch to merge into.
        head: The commit or branch with the submission.
        repository: The git repository.
        account: The account that opened the pull request. Without it, the owner of the name is not checked.
        out: Write verdict.json and summary.md into this folder.
    """
    from agentgym_flow.leaderboard.ci import Repository, checked_account, decide

    decision = decide(
        Repository(repository),
        base,
        head,
        data=data_paths(data),
        jobs=jobs,
        make_policy=_policy(),
        require_sandbox=require_sandbox,
        account=None if account is None else checked_account(account),
    )
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "summary.md").write_text(decision.summary(), "utf-8")
        if decision.verdict is not None:
            decision.verdict.write(out / "verdict.json")
    _show(decision)


@app.command()
def check(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", file_okay=False)],
    root: Root = Path(ROOT),
    data: DataPaths = None,
    jobs: Jobs = None,
    require_sandbox: RequireSandbox = False,
) -> None:
    """Run the checks of CI on one submission. Exits with status 1 if it is rejected.

    An entry that has a verdict plays the fresh tasks of that verdict again, once the season's secret is revealed.

    Options:
        folder: The folder of a submission.
    """
    from agentgym_flow.leaderboard.ci import Decision, check_name
    from agentgym_flow.leaderboard.judge import judge
    from agentgym_flow.leaderboard.publish import verdict_file
    from agentgym_flow.leaderboard.verdict import SubmissionVerdict

    place = folder.resolve()
    try:
        check_name(place.name[11:])
    except BadSubmission as error:
        _show(Decision(refused=str(error)))
    file = verdict_file(root, place)
    verdict = judge(
        folder,
        (place.parent.name, place.name),
        root,
        before=[SubmissionVerdict.read(file)] if file.is_file() else [],
        data=data_paths(data),
        jobs=jobs,
        make_policy=_policy(),
        require_sandbox=require_sandbox,
    )
    _show(Decision.on(verdict, root))


@app.command()
def publish(
    root: Root = Path(ROOT),
    account: str = "",
    data: DataPaths = None,
    jobs: Jobs = None,
    require_sandbox: RequireSandbox = False,
) -> None:
    """Compute the verdict of every merged entry that has none yet. CI runs this command after a merge.

    Submitted weights are evaluated on fresh tasks, which are drawn with the secret of the track's season. The variable
    AGENTGYM_FLOW_SEASON_SECRETS has the secrets of the open seasons as a JSON object, such as {"s1": "..."}. Weights
    without their secret wait. If an entry waits or a verdict is damaged, the other entries are published, and then the
    command names it and exits with status 2.

    Account and time of the merge are read from the git history: the message of the commit that has added the entry
    names the account, by a line "Account: NAME" directly below the subject.

    Options:
        account: The account of entries whose commit does not name one; empty for this project.
    """
    from agentgym_flow.leaderboard.ci import checked_account
    from agentgym_flow.leaderboard.publish import publish as publish_all

    raw = os.environ.get(SECRETS, "") or "{}"  # GitHub sets a secret that does not exist to an empty text
    secrets = typed(decode_file(raw.encode("utf-8"), BadSetting, SECRETS), dict[str, str], BadSetting, SECRETS)
    for verdict in publish_all(
        root,
        data=data_paths(data),
        jobs=jobs,
        make_policy=_policy(),
        secrets=secrets,
        account=checked_account(account),
        require_sandbox=require_sandbox,
    ):
        say(f"{verdict.submission}: {verdict.summary()}")


@app.command()
def render(
    root: Root = Path(ROOT), files: str = "", jobs: Jobs = None, require_sandbox: RequireSandbox = False
) -> None:
    """Render the leaderboard site: self-contained pages. The same input files give the same bytes.

    Options:
        files: The web address of the leaderboards' folder, for links to logs and weights; relative links without it.
    """
    from agentgym_flow.leaderboard import site

    site.render(root, jobs=jobs, files=files, require_sandbox=require_sandbox)
    say(str(root / SITE / "index.html"))


@app.command()
def compare(
    first: Annotated[str, typer.Argument(metavar="A")],
    second: Annotated[str, typer.Argument(metavar="B")],
    most: Most = 20,
    root: Root = Path(ROOT),
) -> None:
    """Compare two entries: the mean difference, its interval and a test, and task by task if they played the same ones.

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
    dtype: str = "float32",
    date: str | None = None,
    root: Root = Path(ROOT),
    data: DataPaths = None,
) -> None:
    """Recompute the log-probabilities of a share of an attested entry's completions with the open weights.

    The commit of the merge draws the turns, so the submitter could not know them. If the entry names these weights as
    model.sha256, the result is written into its verdict: a published entry is ranked once the result holds. Exits with
    status 1 if it does not.

    Options:
        folder: The folder of an attested entry.
        model: The open weights: a Hugging Face folder with .safetensors files, or one file.
        share: The share of all turns to score, drawn at random.
        dtype: The data type of the weights, such as bfloat16.
        date: The day of the evaluation, such as 2026-11-27, if the chat template reads it.
    """
    from msgspec.structs import replace

    from agentgym_flow.leaderboard.publish import verdict_file
    from agentgym_flow.leaderboard.store import complete
    from agentgym_flow.leaderboard.submission import LOG, Submission, open_weights_digest
    from agentgym_flow.leaderboard.track import Track
    from agentgym_flow.leaderboard.verdict import AGAIN_ATTESTED, RescoreResult, SubmissionVerdict
    from agentgym_flow.prompts import template_for
    from agentgym_flow.training.conversation import checked_date, write_date
    from agentgym_flow.training.models import load_model, quiet
    from agentgym_flow.training.submitted import rescore as score_again

    quiet()
    about = Submission.parse((folder / ABOUT).read_bytes())
    board = Track.read(root / TRACKS / f"{about.track}.json")
    file = verdict_file(root, folder.resolve())
    verdict = SubmissionVerdict.read(file) if file.is_file() else None
    merged = verdict is not None and verdict.badge == ATTESTED and verdict.commit
    named = about.model.sha256 if about.model else ""
    digest = open_weights_digest(Path(model))
    if named and digest != named:
        raise BadSetting(f"{model} has the SHA-256 {digest}, and {ABOUT} names {named}: get the weights that it names")
    template = template_for(board.env_id, about.prompt)
    loaded, tokenizer = load_model(model, template, dtype=dtype)
    write_date(tokenizer, checked_date(date))
    with complete(folder, root) as whole:
        found = score_again(
            whole / LOG,
            board,
            loaded,
            tokenizer,
            template,
            share=share,
            seed=merged or "",
            temperature=min(1.0, about.sampling.temperature or 1.0),  # at a high one, every text is as likely
            data=data_paths(data),
        )
    command = AGAIN_ATTESTED.format(folder=f"{ROOT}/{SUBMISSIONS}/{about.track}/{about.id}")
    result = RescoreResult(
        f"{command} --share {share:g} --dtype {dtype}{f' --date {date}' if date else ''}",
        digest, share, found.turns, found.agreed, found.difference, found.surprise,
    )  # fmt: skip
    say(f"{result.summary()}; {found.other_tokens} turns have other tokens")
    if verdict is not None and merged and named:
        replace(verdict, rescored=result).write(file)
        say(f"{file}: the result is written; commit it")
    else:
        note("The result is not recorded: the entry has no merged verdict, or its submission.yaml no model.sha256.")
    if not result.holds:
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
    open_weights: Path | None = None,
    parameters: Annotated[int | None, typer.Option(min=0)] = None,
    weights: str | None = None,
    greedy: Annotated[bool, typer.Option("--greedy")] = False,
    layout: str = "turn",
    half: Annotated[bool, typer.Option("--half")] = False,
    store: Annotated[bool, typer.Option("--store")] = False,
    core_seconds: Annotated[float | None, typer.Option(min=0)] = None,
    episodes: Annotated[int | None, typer.Option(min=0)] = None,
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
        open_weights: For attested: the folder or the file of the open weights, whose digest the entry then names.
        parameters: The number of parameters of the model.
        weights: A link to the open weights of the model, https://...
        greedy: Submitted weights choose the most likely token.
        layout: The prompt layout of submitted weights: turn or conversation.
        half: Store the weights in half precision.
        store: Put the log and the weights into the store of the leaderboards, and only their SHA-256 into the folder.
        core_seconds: The cost of training, in core-seconds.
        episodes: The number of episodes that the policy was trained on.
        source: The source file of the training. The site shows it; it is never run.
        training: For tracks where CI runs the training: the YAML file of its settings.
    """
    from agentgym_flow.leaderboard.ci import Decision, check_name
    from agentgym_flow.leaderboard.judge import judge
    from agentgym_flow.leaderboard.store import store_of
    from agentgym_flow.leaderboard.submission import make_submission, open_weights_digest

    check_name(name)
    about: dict[str, Any] = {"name": name, "badge": badge, "prompt": prompt, "title": title, "authors": author}
    cost = _given(core_seconds=core_seconds, episodes=episodes)
    about |= {"command": command, "training": {"environments": trained_in or [], "data": extra_data, **cost}}
    card = _given(name=model, parameters=parameters, weights=weights)
    if open_weights is not None:
        card |= {"name": model or open_weights.name, "sha256": open_weights_digest(open_weights)}
    sampling = {"greedy": True} if greedy else None
    about |= _given(link=link, model=card or None, sampling=sampling, layout=None if layout == TURN else layout)
    put = store_of(root).put if store else None
    place = make_submission(run, about, root, policy=policy, half=half, source=source, training=training, put=put)
    where = data_paths(data)
    verdict = judge(place, (place.parent.name, place.name), root, data=where, jobs=jobs, make_policy=_policy())
    say(str(place))
    if not verdict.accepted:
        note("correct the problem below, then run: agentgym-flow leaderboard check FOLDER")
    _show(Decision.on(verdict, root))
    stdout().print("Commit this folder alone on a branch, and open a pull request.")


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _policy() -> MakePolicy | None:
    """Return a `MakePolicy` for submitted weights; None if PyTorch is not installed."""
    if find_spec("torch") is None or find_spec("transformers") is None:
        return None

    def make(entry: Folder, track: Track) -> tuple[Policy, str]:
        from agentgym_flow.training.submitted import entry_policy  # imports PyTorch

        return entry_policy(entry, track)

    return make


def _show(decision: Decision) -> None:
    """Print a decision. Exits with status 1 if the submission is rejected."""
    say(decision.summary().rstrip())
    if not decision.ok:
        raise typer.Exit(1)
