"""Run all checks on a submission, from its files to its score, and report the check at which it fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from agentgym_flow._util.values import is_number
from agentgym_flow.episodes import LOGPROBS, EpisodeRecorder, LoggedEpisode, LogLimits, scan_log
from agentgym_flow.errors import (
    AgentGymFlowError,
    BadData,
    BadLog,
    BadSeason,
    BadSubmission,
    BadTrack,
    MissingExtra,
    SandboxFailed,
    SandboxUnavailable,
    UnknownTemplate,
)
from agentgym_flow.leaderboard.files import TRACKS
from agentgym_flow.leaderboard.reproduce import MakePolicy, fresh_track, played, season_of
from agentgym_flow.leaderboard.season import FreshSeed, Season, season_file
from agentgym_flow.leaderboard.store import complete
from agentgym_flow.leaderboard.submission import ABOUT, ATTESTED, LOG, REPRODUCED, Folder, check_place, check_rules
from agentgym_flow.leaderboard.track import Track
from agentgym_flow.leaderboard.verdict import Check, DivergencePoint, Reason, SubmissionVerdict, claims, scored
from agentgym_flow.policies import PolicyInput
from agentgym_flow.prompts import PromptTemplate, template_for
from agentgym_flow.replay import verify_log
from agentgym_flow.replay.stepping import step_again

MOST_SECONDS = 300.0
"""The time limit for reading and replaying a log. Honest submissions of 500 episodes take at most 30 s."""

MOST_UNPACKED = 128 << 20
"""The largest size of a log, uncompressed, in bytes."""

MOST_VALUES = 1 << 22
"""The most values in a log. The logs of season s0 have at most 200,000; a log-probability for each token is one."""

_OURS = (BadData, BadSeason, BadTrack, MissingExtra, SandboxFailed, SandboxUnavailable)
"""Errors of the boards or of the machine; all others are the submission's."""


def judge(
    folder: Path,
    place: tuple[str, str],
    root: Path,
    *,
    data: Mapping[str, str | Path] | None = None,
    jobs: int | None = None,
    make_policy: MakePolicy | None = None,
    secrets: Mapping[str, str] | None = None,
    account: str | None = None,
    before: Iterable[SubmissionVerdict] = (),
    require_sandbox: bool = False,
) -> SubmissionVerdict:
    """Return the verdict on the submission in a folder. Problems of the submission never raise.

    Args:
        folder: the folder with its files.
        place: the names of the track and of the folder in the repository.
        root: the folder with tracks and seasons.
        data: paths of official data, by name.
        jobs: the number of processes for replay; None for one per core.
        make_policy: makes policies from submitted weights; None if PyTorch is not installed.
        secrets: season -> the secret with which fresh tasks are drawn; None for a rehearsal.
        account: the account that submits, empty for the project's own entries; None if it is not known.
        before: the verdicts on the entries that were merged before. If the submission itself is among them, it plays
            the fresh tasks of that verdict again.
        require_sandbox: replay nothing unless the sandbox of `verify_log` is strong.

    Raises:
        MissingExtra: weights are submitted, and `make_policy` is None.
        BadTrack: a track is damaged.
        BadSeason: a season is damaged, or `secrets` lacks its secret or has another one.
        BadData: the official data of the track is not on this machine, or the store cannot be reached.
        SandboxFailed, SandboxUnavailable: this machine cannot replay the log, or lacks the required sandbox.
    """
    verdict = SubmissionVerdict("/".join(place), account=account or "")
    check: Check = "files"
    try:
        with complete(folder, root) as folder:
            entry = Folder.read(folder)
            check_place(place, entry.about)
            verdict = replace(verdict, submission_sha256=entry.digest)
            check = "track"
            track = _track(root / TRACKS, entry.about.track)
            verdict = replace(verdict, track_sha256=track.digest)
            check = "rules"
            check_rules(entry, track)
            if account is not None:
                _check_owner(verdict, before)
            check = "coverage"
            log, limits, in_time = folder / LOG, limits_of(track), within(MOST_SECONDS, LOG)
            said = claims(log, track, limits, in_time)
            check = "steps"
            verdict, problem = _replayed(verdict, log, track, in_time, data, jobs, require_sandbox)
            if problem:
                raise BadSubmission(f"{LOG}: {problem}")
            if entry.about.badge == ATTESTED:
                check = "completions"
                check_completions(log, track, entry.about.prompt, limits, data, in_time)
            if entry.about.badge == REPRODUCED:
                check = "weights"
                if make_policy is None:
                    raise MissingExtra.of("torch", "train")
                drawn = _drawn(root, track.season, secrets)
                policy, digest = make_policy(entry, track)
                verdict = _with_weights(verdict, digest, drawn, before)
                track = fresh_track(track, verdict.season)
                said = played(policy, track)
            check = "score"
            verdict = scored(replace(verdict, badge=entry.about.badge), track, said)
            _check_bar(verdict, track)
    except _OURS:
        raise
    except AgentGymFlowError as error:
        return replace(verdict, badge=None, reason=Reason(check, f"{error!s:.1000}"))
    return replace(verdict, accepted=True)


def _replayed(
    verdict: SubmissionVerdict,
    log: Path,
    track: Track,
    in_time: Callable[[int], None],
    data: Mapping[str, str | Path] | None,
    jobs: int | None,
    require_sandbox: bool,
) -> tuple[SubmissionVerdict, str]:
    """Replay a log. Return the verdict with its first divergence, and the first problem; `""` if there is none."""
    found = verify_log(
        log,
        data,
        jobs=jobs,
        limits=limits_of(track),
        expect=track.episodes,
        on_line=in_time,
        require_sandbox=require_sandbox,
    )
    points = [DivergencePoint(line, one.step, f"{one!s:.600}") for line, one in found.divergences[:1]]
    verdict = replace(verdict, sandbox=found.sandbox, divergence=points[0] if points else None)
    return verdict, "" if found.ok else found.problems()[0]


def _drawn(root: Path, season: str, secrets: Mapping[str, str] | None) -> FreshSeed:
    """Return the secret with which the fresh tasks of a season, or of a track without seasons, are drawn."""
    secret = None if secrets is None else secrets.get(season, "")
    if season:
        return Season.read(season_file(root, season)).drawn_with(secret)
    return FreshSeed((secret or "").encode("utf-8"), public=not secret)


def _with_weights(
    verdict: SubmissionVerdict, digest: str, drawn: FreshSeed, before: Iterable[SubmissionVerdict]
) -> SubmissionVerdict:
    """Return the verdict with the weights and the draw of the fresh tasks, which an entry that was merged keeps.

    Raises `BadSubmission` if the weights or the settings of a training are already an accepted entry of the track.
    """
    origin = digest
    for one in before:
        if one.submission == verdict.submission:
            if one.submission_sha256 == verdict.submission_sha256:
                origin = one.drawn_from or digest
        elif one.accepted and (one.track, one.weights_sha256) == (verdict.track, digest):
            raise BadSubmission(
                f"{one.submission} has the same weights or the same settings of the training, which are one entry of a "
                "track: submit other ones"
            )
    season = season_of(drawn.secret, origin)
    return replace(verdict, weights_sha256=digest, season=season, drawn_from=origin, rehearsal=drawn.public)


def _check_owner(verdict: SubmissionVerdict, before: Iterable[SubmissionVerdict]) -> None:
    """Raise `BadSubmission` if another account has used the name of the entry first, on any track.

    A refused entry does not use its name, because it may have been refused for it.
    """
    using = (one for one in before if one.name == verdict.name and one.reason is None)
    first = min(using, key=lambda one: one.when, default=None)
    if first is not None and first.account != verdict.account:
        whose = f"account {first.account}" if first.account else "this project"
        raise BadSubmission(
            f"{ABOUT}: name: {verdict.name!r} belongs to {whose}, which used it first, for {first.submission}: choose "
            "another name"
        )


def limits_of(track: Track) -> LogLimits:
    """Return the limits on reading a log of a track."""
    return LogLimits(
        max_lines=track.episodes + 1,
        max_bytes=MOST_UNPACKED,
        max_line_bytes=1 << 22,
        max_values=MOST_VALUES,
        max_meta_depth=8,
        max_meta_values=1 << 17,
        max_meta_characters=1 << 18,
        max_actions=track.max_steps,
        max_action_length=1 << 17,
    )


def _check_bar(verdict: SubmissionVerdict, track: Track) -> None:
    """Raise `BadSubmission` unless the lower end of the interval reaches the bar of the track."""
    assert verdict.score is not None
    if verdict.score.low < track.bar:
        raise BadSubmission(
            f"{track.metric} is {verdict.score.mean:.1%}, with {verdict.score.low:.1%} as the lower end of its 95 % "
            f"interval; track {track.name} lists entries from {track.bar:.1%}"
        )


def _track(tracks: Path, name: str) -> Track:
    path = tracks / f"{name}.json"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in tracks.glob("*.json")))
        raise BadSubmission(f"there is no track {name!r}; known: {known}")
    track = Track.read(path)
    if not track.tasks:
        raise BadTrack(f"track {name} has no tasks")
    return track


def within(seconds: float, what: str) -> Callable[[int], None]:
    """Return a function that raises `BadSubmission` if it is called more than `seconds` after now."""
    end = time.monotonic() + seconds

    def check(line: int) -> None:
        if time.monotonic() > end:
            raise BadSubmission(f"{what}: not done after {seconds:g} seconds, at line {line}")

    return check


def check_completions(
    log: Path,
    track: Track,
    prompt: str,
    limits: LogLimits,
    data: Mapping[str, str | Path] | None = None,
    on_line: Callable[[int], None] | None = None,
) -> None:
    """Check the completions of a language model: each has log-probabilities, and parsing it gives the logged action.

    This proves that the actions come from these texts. It does not prove that a model wrote the texts: for that,
    somebody with the weights can recompute the log-probabilities of a random share of them
    (`agentgym-flow leaderboard rescore`).

    Args:
        log: the log, whose episodes are already verified.
        track: its track.
        prompt: the name of a prompt template that is part of the package.
        limits: limits on reading the log.
        data: paths of official data, by name.
        on_line: called with the number of each line before its check; `within` limits the time so.

    Raises `BadSubmission` at the first turn without completion or log-probabilities, or whose completion gives another
    action.
    """
    template = _own_template(track, prompt)
    with closing(track.make_env(data)) as env:
        recorder = EpisodeRecorder(env)
        for number, logged in scan_log(log, limits):
            if isinstance(logged, BadLog):
                raise BadSubmission(str(logged))
            if on_line is not None:
                on_line(number)
            where = f"{log.name} line {number}"
            if logged.completions is None:
                raise BadSubmission(f"{where}: there are no completions; attested entries need a language model")
            _check_logprobs(logged, where)
            outputs = logged.outputs()
            for step, (output, _) in enumerate(zip(outputs, step_again(recorder, logged, outputs), strict=False), 1):
                parsed = template.parse_action(output.text, PolicyInput.of(recorder))
                if parsed != output.action:
                    raise BadSubmission(
                        f"{where}: step {step}: prompt template {prompt} reads {parsed!r:.80} from the completion, and "
                        f"the log has {output.action!r:.80}"
                    )


def _own_template(track: Track, prompt: str) -> PromptTemplate:
    if ":" in prompt:
        raise BadSubmission(f"prompt: {prompt!r:.60} reads a file; name a template of the environment")
    try:
        return template_for(track.env_id, prompt)
    except UnknownTemplate as error:
        raise BadSubmission(f"prompt: {error}") from None


def _check_logprobs(logged: LoggedEpisode, where: str) -> None:
    turns: Any = (logged.meta or {}).get(LOGPROBS)
    if not isinstance(turns, list) or len(turns) != len(logged.actions):
        raise BadSubmission(
            f"{where}: meta.{LOGPROBS} must be a list of {len(logged.actions)}, one list for each turn: evaluate with "
            f"--policy openai:MODEL@URL --policy-arg {LOGPROBS}=true (hf: policies store none)"
        )
    assert logged.completions is not None  # checked before
    for step, (tokens, completion) in enumerate(zip(turns, logged.completions, strict=True), 1):
        known = isinstance(tokens, list) and all(is_number(one) and one <= 1e-3 for one in tokens)
        if not known or (completion and not tokens):
            raise BadSubmission(
                f"{where}: step {step}: meta.{LOGPROBS} must hold a finite number of at most 0 for each token"
            )
