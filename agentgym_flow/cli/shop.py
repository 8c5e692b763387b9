"""`agentgym-flow shop`: serve WebShop as a local web page, on which a person shops, and record every visit."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from agentgym_flow.cli import environments
from agentgym_flow.cli.console import note, say, stderr


def shop(
    split: Annotated[
        str, typer.Option(help="The split that the start page preselects: train, valid or test.")
    ] = "train",
    task: Annotated[int | None, typer.Option(min=0, help="The task that it preselects (default: drawn).")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Visit n in the folder has the seed SEED + n.")] = 0,
    goals: Annotated[str, typer.Option(help="The instructions: synthetic or human.")] = "synthetic",
    data: Annotated[
        str | None,
        typer.Option(help="Official data: a folder, a store or a registered name. Default: the embedded shop."),
    ] = None,
    noun_tagger: Annotated[
        str, typer.Option(help="How the score finds nouns in titles: spacy, words or auto.")
    ] = "auto",
    search: Annotated[str, typer.Option(help="The search engine: bm25 (built in) or pyserini (Lucene).")] = "bm25",
    max_steps: Annotated[int, typer.Option(min=1, help="The largest number of searches and clicks per visit.")] = 100,
    show_attributes: Annotated[
        bool, typer.Option("--show-attributes", help="Give products a page with the attributes that goals are made of.")
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port. 0 chooses a free one.")] = 8000,
    out: Annotated[Path, typer.Option(help="The folder of the logs.")] = Path("runs/shop"),
    token: Annotated[
        str | None,
        typer.Option(envvar="AGENTGYM_FLOW_SHOP_TOKEN", help="The token that protects the list of all visits."),
    ] = None,
    open_page: Annotated[bool, typer.Option("--open/--no-open", help="Open the shop in the browser.")] = False,
) -> None:
    """Serve the shop on this machine: a person shops in the browser as an agent does, and every visit is recorded.

    When a visit ends, the shop writes two files: an episode log that `agentgym-flow verify` can check, and the pages in
    the format of WebShop's logs. All visits are listed at /admin. Ctrl-C closes the shop.
    """
    from agentgym_flow.envs.webshop.site.app import serve  # reports a missing extra before data is read
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
        say(sentence)
        if open_page and not webbrowser.open(address):
            note("cannot open a browser")

    try:
        serve(kept, port=port, token=token, on_ready=on_ready)
    except KeyboardInterrupt:
        pass
    finally:
        if kept.written:
            visits = f"{kept.written} visit{'s are' if kept.written > 1 else ' is'}"
            command = environments.check_command(out / f"NUMBER-ID{EPISODE}", {"data": data})
            say(f"\n{visits} in {out}. Check one with: {command}")
