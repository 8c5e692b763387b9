"""The relations of people."""

from __future__ import annotations

from agentgym_flow.envs.search.world.relations.relation import relation

PEOPLE = (
    relation(
        "person",
        "born",
        "date",
        "{x} was born on {y}|{x} came into the world on {y}|the parish book gives {y} as the day of birth of {x}",
        "",
        "On which day was {x} born?|What is the date of birth of {x}?|When was {x} born?",
        "Who was born earlier, {a} or {b}?|Was {a} born before {b}?",
    ),
    relation(
        "person",
        "birthplace",
        "city",
        "{x} was a child of {y}|{x} was born in {y}|{x} came from a family of bakers in {y} and was born there",
        "the birthplace of {x}|the city of birth of {x}|the native city of {x}",
        "In which city was {x} born?|What is the birthplace of {x}?|Where was {x} born?",
        "Were {a} and {b} born in the same city?",
    ),
    relation(
        "person",
        "university",
        "university",
        "{x} studied at {y}|{x} took a degree at {y}|{x} spent four years as a student at {y}",
        "the university attended by {x}|the university that taught {x}|the alma mater of {x}",
        "At which university did {x} study?|Which university did {x} attend?|What is the alma mater of {x}?",
        "Did {a} and {b} study at the same university?",
    ),
    relation(
        "person",
        "spouse",
        "person",
        "{x} was married to {y}|{x} shared a house and a life with {y}, in marriage|{x} married {y}",
        "the spouse of {x}|the person married to {x}",
        "Whom did {x} marry?|Who was the spouse of {x}?|To whom was {x} married?",
    ),
    relation(
        "person",
        "teacher",
        "person",
        "{x} learned the craft from {y}|{x} was a pupil of {y}|{x} began as an apprentice of {y}",
        "the teacher of {x}|the mentor of {x}",
        "Who was the teacher of {x}?|From whom did {x} learn the craft?|Whose pupil was {x}?",
        "Did {a} and {b} have the same teacher?",
    ),
    relation(
        "person",
        "award",
        "award",
        "{x} received {y}|{x} was honoured with {y}|{x} was given {y}, late but with applause",
        "the award given to {x}|the prize received by {x}",
        "Which award did {x} receive?|With which award was {x} honoured?",
        "Did {a} and {b} receive the same award?",
    ),
    relation(
        "person",
        "died",
        "year",
        "{x} died in {y}|{x} lived until {y}|{y} was the last year of {x}",
        "",
        "In which year did {x} die?|Until which year did {x} live?",
        "Who died earlier, {a} or {b}?|Did {a} die before {b}?",
    ),
)
