"""Makes a page of the records of run.sh: python3 page.py OUT KEYS ROUNDS > page.md"""

import math
import os
import pathlib
import statistics
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from pages import read, table

LOOKUPS = ["readrandom", "readmissing", "multireadrandom"]


def microseconds(record):
    lookups = record.get("asked") or record["operations"]
    return record["wall_seconds"] * 1e6 / lookups


def geometric_mean(values):
    return math.exp(statistics.fmean(math.log(value) for value in values))


def name_of(out, side):
    """The program of a side: the caller's name for it, else its own commit or version."""
    given = os.environ.get(f"TROMMEL_{side.upper()}")
    commit = read(out / f"deep-{side}.jsonl")[0]["environment"].get("commit")
    return given or commit or (out / f"{side}.version").read_text().strip()


def compared(head, rows):
    """For each row the medians of both sides, and the ratio with its least and greatest by round;
    below them, the rows whose rounds disagree on the faster side."""
    cells, undecided = [], []
    for name, base, new in rows:
        ratios = [after / before for before, after in zip(base, new, strict=True)]
        low, high = min(ratios), max(ratios)
        if low <= 1 <= high:
            undecided.append(name)
        medians = [f"{statistics.median(side):.3f}" for side in (base, new)]
        cells.append([name, *medians, f"{geometric_mean(ratios):.3f}", f"{low:.3f} to {high:.3f}"])
    table([*head, "ratio", "rounds"], cells)
    if undecided:
        print(f"The rounds include 1, so no side is known to be faster: {'; '.join(undecided)}.\n")


def lookups(out, tree):
    sides = {side: read(out / f"{tree}-{side}.jsonl") for side in ("before", "after")}
    for workload in LOOKUPS:
        times = {
            side: [microseconds(r) for r in of if r["workload"] == workload]
            for side, of in sides.items()
        }
        yield workload, times["before"], times["after"]


def runs_of(out, side):
    last = [r for r in read(out / f"runs-{side}.jsonl") if r.get("levels")][-1]
    return sum(level["tables"] for level in last["levels"] if level["level"] == 0)


def builds(out):
    def total(records, of):
        by_run = {}
        for record in records:
            by_run[record["run"]] = by_run.get(record["run"], 0.0) + of(record)
        return list(by_run.values())

    def io(field):
        return lambda record: record["io"][field]

    rows = [
        ("flushes", io("flush_seconds")),
        ("compactions", io("compaction_seconds")),
        ("of both, completing filters", io("filter_seconds")),
        ("processor, whole process", lambda r: r.get("user_seconds", 0) + r.get("system_seconds", 0)),
        ("wall, fillrandom and compact", lambda r: r["wall_seconds"]),
    ]
    kinds = {kind: read(out / f"{kind}.jsonl") for kind in ("blocked", "paired")}
    for name, of in rows:
        yield name, total(kinds["blocked"], of), total(kinds["paired"], of)


def main():
    out, keys, rounds = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    environment = read(out / "deep-after.jsonl")[0]["environment"]
    print("# The filters' gain in the engine\n")
    print("This page is written by the command below; no figure in it is typed. See")
    print("[benches/gain](../../benches/gain/README.md) for what is compared and how.\n")
    print(f"```sh\nbenches/gain/run.sh BEFORE AFTER OUT {keys} {rounds} > PAGE.md\n```\n")
    print(f"* Before: {name_of(out, 'before')}; after: {name_of(out, 'after')}")
    print(f"* Processor: {environment.get('cpu', 'unknown')}, {environment['cores']} threads;")
    print(f"  flags: {' '.join(environment['cpu_flags'])}" if isinstance(
        environment["cpu_flags"], list) else f"  flags: {environment['cpu_flags']}")
    print(f"* Compiler: {environment['rustc']}; kernel: {environment['kernel']}")
    print(f"* {keys} keys of 16 + 32 bytes, blocks cached, {rounds} rounds\n")
    print("Ratios are after over before: below 1 is faster. They are geometric means over the")
    print("rounds, with the minimum and maximum of the rounds.\n")
    for tree, title in (
        ("deep", "Lookups, everything in the last level"),
        ("runs", f"Lookups, {runs_of(out, 'before')} runs in level 0"),
    ):
        print(f"## {title}\n")
        compared(["microseconds a key", "before", "after"], lookups(out, tree))
    print("## Building: paired filters against blocked ones, at the default bits\n")
    print("`L0=paired:16,L1-=paired:12` against `L0=blocked:16,L1-=blocked:12`, the program after.\n")
    compared(["seconds a run", "blocked", "paired"], builds(out))


main()
