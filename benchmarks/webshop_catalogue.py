"""WebShop's full catalogue on disk: the cost of the import, of opening, of a listing and of a search.

Launch: `python benchmarks/webshop_catalogue.py [--products 20000] [--folder FOLDER]`. The official catalogue has
1,181,430 products; that many need 8 GB of disk temporarily.

The script first writes files in the official schema, which is not timed: 4 kB per product, with 124 indexed words, as
in the original. 97 of 100 words are drawn from 30,000 so that a few are in most products and most in few, the others
likewise from 5,000,000: a thousand products then have about as many distinct words as a thousand real ones, and the
number keeps growing. 42 % of the products have options and an instruction, with 16 synthetic goals each.

The import and each of three readers run in their own processes. Figures for the import are the peak of private memory,
and the peak including file pages, which the system can reclaim. A reader requests 2,000 listings and makes 500 searches
of 7 words for 50 products, after 50 searches to warm up; three of a query's words come from one product's title. Its
memory is the increase since before opening: private memory, and mapped pages, which all processes share. Times are wall
time and CPU time, which other jobs affect less.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _timing import arguments, print_header, print_row, seconds

from agentgym_flow.envs.webshop.importing import PHASES, ImportProgress, import_catalogue
from agentgym_flow.envs.webshop.official import OfficialFiles, official_files
from agentgym_flow.envs.webshop.store import StoredCatalogue

COMMON, RARE, SHARE_OF_RARE = 30_000, 5_000_000, 0.03
PHRASES, HUMAN = 20_000, 12_000
WARM_UP, SEARCHES, LISTINGS, WORDS_OF_QUERY = 50, 500, 2_000, 7
CATEGORIES = ("beauty", "electronics", "garden", "fashion", "grocery")
BATCH = 1_000


class Cost(NamedTuple):
    """Wall seconds and CPU seconds."""

    wall: float
    cpu: float


# ---------------------------------------------------------------- the files
def word(number: int) -> str:
    """Return word `number`: syllables that stemmers keep, or something like a model number."""
    if number % 5 == 4:
        return f"{'abcdefghkmnpqrtvwxz'[number % 19]}{number}"
    syllables = []
    while True:
        number, letter = divmod(number, 85)
        syllables.append("bcdfghklmnprtvwzj"[letter // 5] + "aeiou"[letter % 5])
        if not number:
            return "".join(syllables) + "k"


def draws(rng: np.random.Generator, size: tuple[int, int]) -> list[list[int]]:
    """Return random word numbers; among common and among rare words, frequency falls as 1/n."""
    choices = np.where(rng.random(size) < SHARE_OF_RARE, RARE, COMMON)
    return (np.exp(rng.random(size) * np.log(choices)).astype(np.int64) - 1).tolist()


def asin_of(number: int) -> str:
    """Return an ASIN of ten characters; ASINs are unordered."""
    code, digits = number * 1_000_003 % 36**8, ""
    for _ in range(8):
        code, digit = divmod(code, 36)
        digits += "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[digit]
    return f"B0{digits}"


def product(number: int, words: list[str], rng: np.random.Generator) -> dict[str, Any]:
    """Return a record in the official schema; 124 of the 244 `words` are indexed."""
    options: Any = ""
    if number % 100 < 42:
        sizes, colours = words[100:104], words[104:108]
        options = {
            name: [
                {"is_selected": False, "is_available": True, "value": value, "asin": None, "price": "", "image": None}
                for value in values
            ]
            for name, values in (("size", sizes), ("color", colours))
        }
    text = words[:100] + ([] if options else words[100:124])
    return {
        "name": " ".join(text[:18]).title(),
        "product_information": {words[at]: " ".join(words[at : at + 19]) for at in range(124, 244, 20)},
        "brand": words[124],
        "brand_url": f"https://example.com/{words[124]}",
        "full_description": " ".join(text[18:75]).capitalize() + ".",
        "pricing": f"${number % 190 + 5}.99",
        "list_price": "",
        "availability_quantity": None,
        "availability_status": "In Stock.",
        "images": [f"https://example.com/images/{asin_of(number + image)}.jpg" for image in range(8)],
        "product_category": " \u203a ".join(words[at].title() for at in (124, 125, 126)),
        "average_rating": "",
        "small_description": [" ".join(text[75:])] + [" ".join(words[at : at + 20]) for at in range(124, 244, 20)],
        "total_reviews": "",
        "total_answered_questions": "",
        "customization_options": options,
        "seller_id": None,
        "seller_name": " ".join(words[126:128]),
        "fulfilled_by_amazon": None,
        "fast_track_message": "",
        "aplus_present": None,
        "asin": asin_of(number),
        "category": CATEGORIES[number % 5],
        "query": f"query {number % 4000}",
        "page": number % 400,
        "small_description_old": [" ".join(words[at : at + 20]) for at in range(124, 244, 20)],
    }


def write_files(folder: Path, products: int) -> OfficialFiles:
    """Write the three files, one product at a time."""
    rng = np.random.default_rng(5)
    phrases = [" ".join(map(word, pair)) for pair in draws(rng, (PHRASES, 2))]
    every = max(products // HUMAN, 1)
    with (
        (folder / "items_shuffle.json").open("w", encoding="utf-8") as items,
        (folder / "items_ins_v2.json").open("w", encoding="utf-8") as attributes,
        (folder / "items_human_ins.json").open("w", encoding="utf-8") as human,
    ):
        files = (items, attributes, human)
        for file, bracket in zip(files, "[{{", strict=True):
            file.write(bracket)
        for number, words in enumerate(texts(rng, products)):
            comma, asin = ", " if number else "", asin_of(number)
            items.write(comma + json.dumps(product(number, words, rng), ensure_ascii=False))
            asked: dict[str, Any] = {"attributes": [phrases[(number * 7 + n * n) % PHRASES] for n in range(4)]}
            if number % 100 < 42:
                asked["instruction"] = f"i am looking for a {words[0]} {words[1]} that is {asked['attributes'][0]}"
                asked["instruction_attributes"] = asked["attributes"][:2]
            attributes.write(f"{comma}{json.dumps(asin)}: {json.dumps(asked)}")
            if number % every == 0:
                request = {"asin": asin, "instruction": f"i want a {words[0]}", "instruction_options": words[100:101]}
                request |= {"instruction_attributes": asked["attributes"][:1]}
                human.write(f"{comma}{json.dumps(asin)}: {json.dumps([request])}")
        for file, bracket in zip(files, "]}}", strict=True):
            file.write(bracket)
    return official_files(folder)


def texts(rng: np.random.Generator, products: int) -> Iterator[list[str]]:
    """Yield 244 words for each product."""
    for start in range(0, products, BATCH):
        for numbers in draws(rng, (min(BATCH, products - start), 244)):
            yield [word(number) for number in numbers]


# ---------------------------------------------------------------- measuring
def megabytes(field: str) -> float:
    """Return a field of the process's status, such as `RssAnon`, in megabytes."""
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith(f"{field}:"))) / 1024


def on_disk(folder: Path) -> float:
    """Return the megabytes of all files below a folder, except those that vanish meanwhile."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                total += Path(root, name).stat().st_size
            except FileNotFoundError:
                continue
    return total / 2**20


def run_import(files: OfficialFiles, folder: Path) -> tuple[dict[str, Cost], dict[str, float]]:
    """Import; return the cost of each phase, and peaks in megabytes: private memory, all memory, disk."""
    marks: dict[str, tuple[float, float]] = {}
    peaks = {"own": 0.0, "all": 0.0, "disk": 0.0}
    finished = threading.Event()

    def watch() -> None:
        while not finished.wait(0.25):
            peaks["own"] = max(peaks["own"], megabytes("RssAnon"))
            peaks["disk"] = max(peaks["disk"], on_disk(folder.parent))

    def mark(progress: ImportProgress) -> None:
        marks[progress.phase] = (time.perf_counter(), time.process_time())

    watcher = threading.Thread(target=watch)
    before = previous = (time.perf_counter(), time.process_time())
    watcher.start()
    try:
        import_catalogue(*files, folder, progress=mark)
    finally:
        finished.set()
        watcher.join()
    after = (time.perf_counter(), time.process_time())
    costs = {}
    for phase in PHASES:
        costs[phase] = Cost(*np.subtract(marks[phase], previous).tolist())
        previous = marks[phase]
    peaks["all"] = megabytes("VmHWM")
    return {**costs, "all": Cost(*np.subtract(after, before).tolist())}, peaks


def read(folder: Path) -> dict[str, float]:
    """Open the store in this process; return milliseconds and megabytes."""
    rng = np.random.default_rng(7)
    own, shared = megabytes("RssAnon"), megabytes("RssFile")
    start = time.perf_counter()
    catalogue = StoredCatalogue(folder)
    catalogue.listing(0)
    found = {"open": (time.perf_counter() - start) * 1000, "own after opening": megabytes("RssAnon") - own}
    numbers = rng.integers(len(catalogue), size=LISTINGS).tolist()
    found |= timed("listing", [lambda n=n: catalogue._read(n) for n in numbers])
    catalogue.listing(1)
    found |= timed("cached", [lambda: catalogue.listing(1)] * 500)
    queries = []
    for others in draws(rng, (WARM_UP + SEARCHES, WORDS_OF_QUERY)):
        title = catalogue.listing(int(rng.integers(len(catalogue)))).product.name.split()
        queries.append(" ".join(title[:3] + [word(number) for number in others[3:]]))
    for query in queries[:WARM_UP]:
        catalogue.search(query)
    found |= timed("search", [lambda q=query: catalogue.search(q) for query in queries[WARM_UP:]])
    return {**found, "own": megabytes("RssAnon") - own, "shared": megabytes("RssFile") - shared}


def timed(name: str, calls: list[Callable[[], object]]) -> dict[str, float]:
    """Return the median and the 99th percentile of the calls in milliseconds."""
    found = {}
    for kind, clock in (("wall", time.perf_counter), ("CPU", time.process_time)):
        times = [seconds(call, clock) * 1000 for call in calls]
        found[f"{name} {kind} p50"] = statistics.median(times)
        found[f"{name} {kind} p99"] = statistics.quantiles(times, n=100)[-1]
    return found


def main() -> None:
    """Print two tables."""
    parser = arguments(__doc__)
    parser.add_argument("--products", type=int, default=20_000, help="products in the catalogue (default 20000)")
    parser.add_argument("--folder", type=Path, help="working folder; existing files and stores are reused")
    options = parser.parse_args()
    home = options.folder or Path(tempfile.mkdtemp())
    home.mkdir(parents=True, exist_ok=True)
    try:
        measure(home, options.products)
    finally:
        if options.folder is None:
            shutil.rmtree(home)


def measure(home: Path, products: int) -> None:
    """Write, import and read a catalogue in `home`."""
    files = official_files(home) if (home / "items_shuffle.json").exists() else write_files(home, products)
    size = files.items.stat().st_size / 2**20
    # A fresh process for every figure, because peak memory never decreases.
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        (home / "work").mkdir(exist_ok=True)
        if not (home / "work" / "store").exists():
            print(f"{products:,} products, {size:,.0f} MB\n")
            costs, peaks = pool.apply(run_import, (files, home / "work" / "store"))
            print_header("import", "wall", "CPU", "of the file of products", numeric=True)
            for phase, cost in costs.items():
                print_row(phase, f"{cost.wall:.1f} s", f"{cost.cpu:.1f} s", f"{size / cost.wall:.1f} MB/s")
            print(f"\npeaks: {peaks['own']:.0f} MB own memory, {peaks['all']:.0f} MB with mapped files,", end=" ")
            print(f"{peaks['disk']:,.0f} MB on disk; the store has {on_disk(home / 'work' / 'store'):,.0f} MB\n")
        readers = [pool.apply(read, (home / "work" / "store",)) for _ in range(3)]
    print_header("reading", "median of three processes", numeric=True)
    for name in readers[0]:
        unit = "MB" if name.startswith(("own", "shared")) else "ms"
        print_row(name, f"{statistics.median(reader[name] for reader in readers):.3g} {unit}")


if __name__ == "__main__":
    main()
