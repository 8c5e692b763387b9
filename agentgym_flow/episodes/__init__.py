"""Episodes as data: turns, groups, and the log."""

from typing import TYPE_CHECKING

from agentgym_flow._util.importing import on_demand

if TYPE_CHECKING:
    from agentgym_flow.episodes.episode import (
        BOARD_SCHEMA,
        SCHEMA,
        TRUNCATED_BY,
        Episode,
        EpisodeRecorder,
        Group,
        LinkValues,
        PolicyOutput,
        Turn,
        first_link,
        next_link,
    )
    from agentgym_flow.episodes.log import (
        LOGPROBS,
        MAX_VALUES,
        NO_LIMITS,
        REASONING,
        UNRANKED,
        LoggedEpisode,
        LogLimits,
        LogWriter,
        check_against,
        limits_beyond_default,
        notes_by_turn,
        raw_lines,
        read_line,
        read_log,
        scan_log,
        write_log,
    )
else:
    __getattr__ = on_demand(__name__)  # hidden from type checkers, which would accept any name

__all__ = [
    "BOARD_SCHEMA",
    "LOGPROBS",
    "MAX_VALUES",
    "NO_LIMITS",
    "REASONING",
    "SCHEMA",
    "TRUNCATED_BY",
    "UNRANKED",
    "Episode",
    "EpisodeRecorder",
    "Group",
    "LinkValues",
    "LogLimits",
    "LogWriter",
    "LoggedEpisode",
    "PolicyOutput",
    "Turn",
    "check_against",
    "first_link",
    "limits_beyond_default",
    "next_link",
    "notes_by_turn",
    "raw_lines",
    "read_line",
    "read_log",
    "scan_log",
    "write_log",
]
