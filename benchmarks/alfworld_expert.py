"""ALFWorld's expert compared with an exhaustive search: how many steps longer its plans are, and the cost of a plan.

Launch: `python benchmarks/alfworld_expert.py [--games N] [--wander K]`. A whole room has too many states, so generated
games are reduced first: to the wanted objects (and lamps), the receptacles that hold or treat them or are at the same
spots, and two of the goal's. That does not change the length of any plan from the start of the full game. After
`--wander` random moves in the small game, the results are for the small game only.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace

from _timing import arguments, print_header, print_row

from agentgym_flow.core import Stream
from agentgym_flow.envs.alfworld import tasks
from agentgym_flow.envs.alfworld.compiled_game import FRIDGES, MICROWAVES, SINKS, compile_game
from agentgym_flow.envs.alfworld.game import ALFWorldGame
from agentgym_flow.envs.alfworld.policies import least_moves, shortest_plan
from agentgym_flow.envs.alfworld.problem import TASK_TYPES, PDDLProblem, read_goal

KEPT_GOALS = 2


def cut_down(problem: PDDLProblem) -> PDDLProblem:
    """Return the problem with only the objects and receptacles of its goal."""
    goal = read_goal(problem.goal, problem.name)
    kind_of = {fact[1]: fact[2] for fact in problem.facts if fact[0] in ("objecttype", "receptacletype")}
    spot_of = {fact[1]: fact[2] for fact in problem.facts if fact[0] == "receptacleatlocation"}
    things = {name for name, kind in kind_of.items() if kind in (goal.thing, goal.lamp)}
    tools = {"isclean": SINKS, "ishot": MICROWAVES, "iscool": FRIDGES}
    wanted_kinds = {kind for condition in goal.conditions for kind in tools.get(condition, ())}
    kept = {fact[2] for fact in problem.facts if fact[0] == "inreceptacle" and fact[1] in things}
    kept |= {name for name in spot_of if kind_of.get(name) in wanted_kinds}
    kept |= set(sorted(name for name in spot_of if kind_of.get(name) == goal.place)[:KEPT_GOALS])
    kept_spots = {spot_of[name] for name in kept}
    kept |= {name for name, spot in spot_of.items() if spot in kept_spots and kind_of.get(name) == goal.place}
    gone = {name for name in kind_of if name not in things | kept}
    facts = tuple(fact for fact in problem.facts if not gone & set(fact[1:]))
    return replace(problem, facts=facts)


def measure(games: int, wander: int) -> None:
    """Print for each task type how much longer the expert's plans are than the shortest."""
    excess: dict[str, list[tuple[int, int]]] = {kind: [] for kind in TASK_TYPES}
    milliseconds: list[float] = []
    for task in range(games):
        problem, words = tasks.task_problem("test", task)
        game, rng = ALFWorldGame(compile_game(cut_down(problem), words)), Stream("benchmark", task)
        for _ in range(wander):
            game.act(rng.choice(game.commands()))
        plan, least = shortest_plan(game), least_moves(game)
        if plan is None or least is None:
            assert plan is least, f"task {task}: the expert and the search disagree on whether there is a way"
            continue
        excess[game.compiled.goal.task_type].append((len(plan), least))
        whole = ALFWorldGame(compile_game(problem, words))
        start = time.process_time()
        shortest_plan(whole)
        milliseconds.append((time.process_time() - start) * 1e3)
    print_header("task type", "games", "mean shortest", "mean of the expert", "shortest found", "most steps longer")
    excess["all"] = [pair for pairs in excess.values() for pair in pairs]
    for kind, pairs in excess.items():
        if pairs:
            longer = Counter(plan - least for plan, least in pairs)
            mean_least = f"{sum(least for _, least in pairs) / len(pairs):.2f}"
            mean_plan = f"{sum(plan for plan, _ in pairs) / len(pairs):.2f}"
            print_row(kind, str(len(pairs)), mean_least, mean_plan, f"{longer[0] / len(pairs):.1%}", str(max(longer)))
    ordered = sorted(milliseconds)
    middle, longest = ordered[len(ordered) // 2], ordered[-1]
    print(f"\nA plan in the whole room: median {middle:.2f} ms, longest {longest:.2f} ms of CPU time.")


if __name__ == "__main__":
    parser = arguments(__doc__ or "")
    parser.add_argument("--games", type=int, default=200, help="generated test games (default 200)")
    parser.add_argument("--wander", type=int, default=0, help="random moves before the plan (default 0)")
    chosen = parser.parse_args()
    measure(chosen.games, chosen.wander)
