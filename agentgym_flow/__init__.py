"""Gymnasium environments, dense rewards, reference trainers and verifiable leaderboards for LLM agents.

`import agentgym_flow` registers the environments; `gymnasium.make("agentgym_flow/Sokoban-v0")` makes one. Importing is
light: no torch, no network, no output.
"""

import os
import sys
from itertools import pairwise

if (sys.argv[:1] == ["-m"] and ("-m", __name__) in pairwise(sys.orig_argv)) or (
    os.path.splitext(os.path.basename(sys.argv[0] if sys.argv else ""))[0] == "agentgym-flow"
):  # the command, not an import. Without pathlib, because importing is light
    _hook = sys.excepthook
    # Print no traceback after Ctrl-C during the imports below, before the command can handle it.
    sys.excepthook = lambda kind, *rest: None if issubclass(kind, KeyboardInterrupt) else _hook(kind, *rest)

from typing import TYPE_CHECKING

from agentgym_flow._util import __version__
from agentgym_flow._util.importing import on_demand
from agentgym_flow.envs import register_all

if TYPE_CHECKING:
    from agentgym_flow.core import Stream, TextEnv
    from agentgym_flow.envs import make_text_env
    from agentgym_flow.episodes import (
        Episode,
        EpisodeRecorder,
        Group,
        LoggedEpisode,
        LogLimits,
        Turn,
        read_log,
        write_log,
    )
    from agentgym_flow.play import (
        EnvPool,
        EpisodeSpec,
        Evaluation,
        collect,
        evaluate,
        paired_difference,
        rollout_groups,
    )
    from agentgym_flow.prompts import PromptTemplate, template_for
    from agentgym_flow.replay import LogVerdict, verify, verify_log
    from agentgym_flow.report import Curve, graph_svg, workflow_svg, write_report
else:
    __getattr__ = on_demand(__name__)  # hidden from type checkers, which would accept any name

__all__ = [
    "Curve",
    "EnvPool",
    "Episode",
    "EpisodeRecorder",
    "EpisodeSpec",
    "Evaluation",
    "Group",
    "LogLimits",
    "LogVerdict",
    "LoggedEpisode",
    "PromptTemplate",
    "Stream",
    "TextEnv",
    "Turn",
    "__version__",
    "collect",
    "evaluate",
    "graph_svg",
    "make_text_env",
    "paired_difference",
    "read_log",
    "rollout_groups",
    "template_for",
    "verify",
    "verify_log",
    "workflow_svg",
    "write_log",
    "write_report",
]

register_all()
