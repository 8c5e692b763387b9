"""`agentgym-flow shop`: WebShop as a web page on this machine, where a person shops and every visit is recorded."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from agentgym_flow.cli import environments
from agentgym_flow.cli.console import note, printed, stderr, stdout


def shop(
    split: Annotated[str, typer.Option(help="The split that the start page proposes: train, valid or test.")] = "train",
    task: Annotated[int | None, typer.Option(min=0, help="The task that it proposes; without it one is drawn.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Visit n of the folder has the seed SEED + n.")] = 0,
    goals: Annotated[str, typer.Option(help="synthetic or human instructions.")] = "synthetic",
    data: Annotated[
        str | None, typer.Option(help="Official data: a folder, a store, or a registered name; else the embedded shop.")
    ] = None,
    noun_tagger: Annotated[
        str, typer.Option(help="What tells the nouns in titles for the score: spacy, words, or auto.")
    ] = "auto",
    search: Annotated[str, typer.Option(help="Who ranks: bm25 (ours) or pyserini (Lucene itself).")] = "bm25",
    max_steps: Annotated[int, typer.Option(min=1, help="Searches and clicks that a visit may have.")] = 100,
    show_attributes: Annotated[
        bool, typer.Option("--show-attributes", help="Products have a page of what goals are made of.")
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes any free one.")] = 8000,
    out: Annotated[Path, typer.Option(help="The folder of the logs.")] = Path("runs/shop"),
    token: Annotated[
        str | None, typer.Option(envvar="AGENTGYM_FLOW_SHOP_TOKEN", help="What the list of all visits asks for.")
    ] = None,
    open_page: Annotated[bool, typer.Option("--open/--no-open", help="Open the shop in the browser.")] = False,
) -> None:
    """Open the shop on this machine: a person shops as an agent does, and every visit is recorded.

    A visit is written to two files when it ends: an episode log that `agentgym-flow verify` checks, and the pages in
    the form of WebShop's own logs. The list of all visits is at /admin. Ctrl-C closes the shop.
    """
    from agentgym_flow.envs.webshop.site.serve import (
        serve,  # first: a missing extra should be told before data are read
    )
    from agentgym_flow.envs.webshop.site.sessions import EPISODE, Shop

    with stderr().status("opening the shop"):
        kept = Shop(
            out,
            split=split,
            task=task,
            seed=seed,
            goals=goals,
            data=data,
            max_steps=max_steps,
            show_attributes=show_attributes,
            noun_tagger=noun_tagger,
            search=search,
        )

    def on_ready(address: str) -> None:
        sentence = f"The shop is open: {address} (all visits: {address}admin). Ctrl-C closes it."
        stdout().print(printed(sentence), soft_wrap=True)
        if open_page and not webbrowser.open(address):
            note("no browser can be opened from here")

    try:
        serve(kept, port=port, token=token, on_ready=on_ready)
    except KeyboardInterrupt:
        pass
    finally:
        if kept.written:
            visits = f"{kept.written} visit{'s are' if kept.written > 1 else ' is'}"
            command = environments.check_command(out / f"NUMBER-ID{EPISODE}", {"data": data})
            stdout().print(printed(f"\n{visits} in {out}. Check one with: {command}"), soft_wrap=True)
