"""Patterns that map phrases to *cues*, the facts they are about: `mayor` and `was led by` both have the cue `mayor`.

The notes of a tiny policy use cues to match sentences with questions. The patterns invert the templates of the
generated articles and questions, and work less well on other texts. They contain no names or facts, and use neither the
generated world nor its answers. A policy with these notes does not learn to understand text; it learns decisions: what
to search for, and when to answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_CUES = {
    "alias": r"some texts say|another name for|older sources have the name|name .* is found as well|also known as",
    "died": r"\bdied?\b|lived? until|last year of|until which year",
    "birthday": (
        r"\bborn (on|earlier|before)\b|\bwhen (was|were)\b.*\bborn\b|\bday\b.*\bborn\b|date of birth|day of birth"
        r"|into the world"
    ),
    "birthplace": r"\bborn\b|birthplace|city of birth|native (city|town|place)|was a child of",
    "capital": r"\bcapital\b|seat of government|governed",
    "summit": r"highest|tallest|no summit|greatest height",
    "stream": r"longest|no river",
    "currency": r"currency|\bpay with|own money",
    "students": r"\bstudents\b|enrolled",
    "staff": r"employees|employ\b|employs\b|payroll|fewer people",
    "population": r"inhabitants|census|population|how many people",
    "area": r"square kilometres|\barea\b|surface|\bextent\b",
    "length": r"\bkilometres\b|how long|\blength\b|\bshorter\b|from spring to mouth",
    "height": r"\bmetres\b|how high|\bheight of\b|\blower\b",
    "teacher": r"\bcraft\b|\bpupil\b|apprentice|\bteacher\b|\bmentor\b",
    "honours": r"named after|\bnamed\?|after whom|keeps the memory|\bhonours?\b|honoured by|namesake",
    "award": r"received?\b|honoured with|award was|award did|award given to|prize received|given .*applause|same award",
    "giver": r"given by|\bpresents\b|in the gift of|university behind|university is .*given",
    "married": r"marri(ed|age)|marry|spouse|wife|husband",
    "alma mater": r"studied|\bstudy\b|took a degree|student at|attend(ed)?\b|that taught|alma mater",
    "founder": r"endowed|owes? .*foundation|established with|\bstarted\b|idea of|whose idea|founder|who founded",
    "mayor": r"\bmayor\b",
    "surveyor": r"\bmap(ped)?\b|surveyed",
    "climber": r"first (to )?(climbed|stand|stood)|first ascent|to climb|climber|climbed it",
    "organiser": r"organis|chaired|was opened by",
    "designer": r"designed|architect of|the architect|building of .* is by|\bplans\b",
    "captain": r"captain|\bsail(ed)?\b|\bcommand(ed)?\b",
    "builder": r"\bbuilder\b|\bbuilt\b|\bhull\b|\byard\b",
    "publisher": r"publisher|brought out|\bproduced\b|\b(studio|label) of\b|\bissued\b|same (studio|label)",
    "setting": (
        r"set in|setting|\bshot in|place of shooting|first night|recorded in|place of recording|plays in the city"
    ),
    "museum": r"\bhangs?\b|is kept in|wants to see|museum that|museum owns",
    "maker": (
        r"\bauthor\b|\bwrote\b|written|director (of|behind)|\bdirected\b|singer (of|behind)|\brecorded\b"
        r"|composer (of|behind)|composed|painter (of|behind)|\bpainted\b|is a work of|the (singer|composer)"
        r"|the (director|painter)"
    ),
    "council": r"administered|\bcouncil\b|chief town|administrative seat",
    "source": r"\brises? on|springs|begins as|source of|\brise\b",
    "river": r"\bbanks?\b|grew up along|\bquays\b|crossed by|crosses|flows through|which river does|same river",
    "home": r"\bits seat\b|\bbased\b|its home|main building|where one finds|home city|seat of",
    "host": r"took place|take place|\bheld in\b|\bhost(ed)?\b|city of $|city of the $",
    "within": (
        r"\blies in|is found in|by way of|belongs? to|part of|region in|that contains|country around|region (around|of)"
        r"|which (region|country)|same (region|country)"
    ),
}
_READ = {cue: re.compile(pattern, re.IGNORECASE) for cue, pattern in _CUES.items()}
_TELLS_TIME = re.compile(r"\b(?:1[0-9]|20|[7-9])\d\d\b(?![,.]\d)|\b[7-9]\d\d\b(?![,.]\d)")
_ASKS_TIME = re.compile(r"\b(which|what) year\b|\bwhen\b|\bsince when\b|\bearlier\b|\bbefore\b", re.IGNORECASE)

TIME = "time"
"""The cue for the time of an event; births and deaths have their own cues."""

CUES = (*_CUES, TIME)
"""All cues. If several match a text, the first one counts."""

WANTED: Mapping[str, str] = {
    "birthday": "date",
    "currency": "word",
    **dict.fromkeys(("died", TIME), "year"),
    **dict.fromkeys(("students", "staff", "population", "area", "length", "height"), "number"),
}
"""Cue -> the shape of its value; other cues ask for a name."""

_QUOTED = re.compile(r'"[^"]*"')
_OWN_TIME = ("alias", "died", "birthday", *(cue for cue, shape in WANTED.items() if shape == "number"))


def cue_of_sentence(sentence: str) -> str:
    """Return the cue of a sentence of an article; the empty string if it has none."""
    sentence = _QUOTED.sub('""', sentence)  # titles can contain any words
    cue = _first(sentence)
    return TIME if cue not in _OWN_TIME and _TELLS_TIME.search(sentence) else cue


def cue_of_question(words: str) -> str:
    """Return the cue of a part of a question; the empty string if it has none."""
    cue = _first(words)
    return TIME if cue not in _OWN_TIME and _ASKS_TIME.search(words) else cue


def _first(text: str) -> str:
    return next((cue for cue, pattern in _READ.items() if pattern.search(text)), "")
