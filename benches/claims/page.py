"""Makes a page of the results of run.sh: python3 page.py OUT DOCS > page.md"""

import json
import math
import pathlib
import statistics
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from pages import read, table

OUT, DOCS = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])


def lines(name):
    path = OUT / f"{name}.jsonl"
    return read(path) if path.exists() else []


def one(records, filters, **cell):
    """The record of these filters, named as in the plan, with these fields in its cell."""
    for record in records:
        of = record["cell"]
        if filters in (of["filters"], of["family"]) and all(of[k] == v for k, v in cell.items()):
            return record
    raise SystemExit(f"{filters} {cell} was not measured")


def small(value):
    if value == 0:
        return "0"
    if abs(value) < 0.001:
        return f"{value:.2e}"
    return f"{value:.3g}" if abs(value) < 1 else f"{value:.2f}"


def estimate(of):
    return f"{small(of['mean'])} ± {small((of['interval'][1] - of['interval'][0]) / 2)}"


def wasted(record):
    return record["wasted_reads"]["mean"]


def bits(record):
    return record["filter_bytes"] * 8 / record["keys"]


def one_in(rate):
    return f"1/{1 / rate:,.0f}"


def percent(share):
    return f"{share * 100:.1f}%"


VERDICTS = []


def claim(title, anchor, said, found, holds):
    """A row of the summary. `holds`: True, False, or a word."""
    word = {True: "reproduced", False: "corrected"}.get(holds, holds)
    VERDICTS.append([f"[{title}](#{anchor})", said, found, word])


SECTIONS = []


def section(function):
    SECTIONS.append(function)
    return function


def heading(title):
    print(f"## {title}\n")


@section
def equivalence():
    heading("23.4 bits")
    rates = {r["spec"]: r["rate"] for r in map(flat, lines("rates"))}
    print("Single filters of 100,000 keys, queried for missing keys:\n")
    rows = []
    for spec in ("paired:23.4", "blocked:28", "blocked:23.4", "standard:23.4"):
        of = rates[spec]
        low, high = of["interval"]
        rows.append([f"`{spec}`", f"{of['asked']:,}", f"{of['false_positives']:,}",
                     one_in(of["measured"]), f"{one_in(high)} to {one_in(low)}",
                     one_in(of["expected"])])
    table(["filter", "queries", "errors", "rate", "95% interval", "by theory"], rows)
    paired, blocked = rates["paired:23.4"]["measured"], rates["blocked:28"]["measured"]
    standard = rates["standard:23.4"]["measured"]
    claim("paired, 23.4 bits", "234-bits", "errs once in about 55,000", one_in(paired),
          paired <= 1 / 55000 or False)
    claim("the same", "234-bits", "close to the limit of a standard filter",
          f"{paired / standard:.2f} times a standard filter's rate", paired / standard < 1.5)
    claim("23.4 bits paired, 28 blocked", "234-bits", "equal, 16% less memory",
          f"rates {paired / blocked:.2f} to 1, {percent(1 - 23.4 / 28)} less",
          abs(paired / blocked - 1) < 0.1)


def flat(record):
    """A record of filter-bench, in which the cell may be a separate object."""
    return {**record.get("place", {}), **record.get("cell", {}), **record}


@section
def equal_rate():
    records = lines("equal-rate")
    heading("Equal rates, less memory")
    print("Test 1 of the document. A store of twenty overlapping runs; every lookup is for a missing key, and")
    print("queries all twenty filters. The bits per key are those that have the rate by theory.")
    print("[The plan](../../benches/plans/equal-rate.toml).\n")
    rows, saved = [], {}
    for rate in (1e-2, 1e-3, 1e-4, 1.674e-5):
        base = one(records, "blocked:fpr={budget}", budget=rate)
        for kind in ("blocked", "paired", "ribbon"):
            record = one(records, f"{kind}:fpr={{budget}}", budget=rate)
            saved[kind, rate] = 1 - record["filter_bytes"] / base["filter_bytes"]
            rows.append([one_in(rate), kind, f"{bits(record):.2f}",
                         f"{record['filter_bytes'] / 1024:,.0f}", estimate(record["wasted_reads"]),
                         small(record["predicted"]["wasted_reads"]),
                         "" if kind == "blocked" else percent(saved[kind, rate])])
    table(["rate of one filter", "kind", "bits a key", "KiB", "wasted reads a lookup", "predicted",
           "less memory than blocked"], rows, words=2)
    print("![wasted reads by filter bytes](filters-claims-equal-rate-waste-1.svg)\n")
    print("The document's 23% is for filters of 29 and 40 bits per key. It depends on the rate alone: the")
    print("lower the rate, the larger the difference.\n")
    low, high = saved["paired", 1e-2], saved["paired", 1.674e-5]
    claim("equal rate, less memory", "equal-rates-less-memory", "23% less",
          f"{percent(low)} at 1/100 to {percent(high)} at {one_in(1.674e-5)}", False)


@section
def one_in_a_million():
    heading("One in a million")
    rates = {r["spec"]: r["rate"] for r in map(flat, lines("rates"))}
    theory = {row["rate"]: row for row in json.loads((OUT / "theory.json").read_text())["bits_per_key"]}
    rows = []
    for spec in ("paired:29.522", "blocked:38.825", "ribbon:20.311"):
        of = rates[spec]
        low, high = of["interval"]
        rows.append([f"`{spec}`", f"{of['asked']:,}", f"{of['false_positives']:,}",
                     one_in(of["measured"]), f"{one_in(high)} to {one_in(low)}"])
    table(["filter", "queries", "errors", "rate", "95% interval"], rows)
    less = {rate: 1 - row["paired"] / row["blocked"] for rate, row in theory.items()}
    print("Bits per key for a rate, by theory:\n")
    table(["rate", "blocked", "paired", "less"],
          [[f"{rate:.0e}", f"{row['blocked']:.2f}", f"{row['paired']:.2f}", percent(less[rate])]
           for rate, row in theory.items()])
    claim("rates of 1/1,000,000", "one-in-a-million", "30% less memory",
          f"{percent(less[1e-6])} less; {percent(less[1e-7])} at one in ten million", False)


@section
def equal_memory():
    records = lines("equal-memory")
    heading("Equal memory, fewer reads of the disk")
    print("Test 2 of the document. Twenty overlapping runs, direct reads, and a block cache of a hundredth of")
    print("the blocks. Reads of files are counted below the store, by the file system; at 99.9% misses they")
    print("include the reads of present keys. [The plan](../../benches/plans/equal-memory.toml).\n")
    rows, ratio = [], {}
    for misses in (1.0, 0.999):
        for budget in (16.0, 23.4):
            base = one(records, "blocked:{budget}", budget=budget, misses=misses)
            for kind in ("blocked", "paired", "ribbon"):
                record = one(records, f"{kind}:{{budget}}", budget=budget, misses=misses)
                ratio[kind, budget, misses] = base["file_reads"] / max(record["file_reads"], 1e-12)
                rows.append([percent(misses), f"`{kind}:{budget:g}`",
                             f"{record['filter_bytes'] / 1024:,.0f}", estimate(record["wasted_reads"]),
                             small(record["file_reads"])])
    table(["misses", "filters", "KiB", "wasted reads a lookup", "reads of files a lookup"], rows,
          words=2)
    found = f"{ratio['paired', 23.4, 1.0]:.1f} times fewer reads at 23.4 bits, "
    found += f"{ratio['paired', 16.0, 1.0]:.1f} at 16"
    claim("equal memory, better rate", "equal-memory-fewer-reads-of-the-disk",
          "fewer reads where the disk limits", found, ratio["paired", 23.4, 1.0] > 2)


@section
def overlapping():
    records = lines("overlapping")
    heading("A hundred overlapping tables")
    print("And a key that is in none of them. [The plan](../../benches/plans/overlapping.toml).\n")
    specs = ("none", "blocked:10", "paired:10", "paired:16")
    table(["filters", "KiB", "wasted reads a lookup", "predicted"],
          [[f"`{spec}`", f"{r['filter_bytes'] / 1024:,.0f}", estimate(r["wasted_reads"]),
            small(r["predicted"]["wasted_reads"])] for spec in specs for r in [one(records, spec)]])
    none, ten = wasted(one(records, "none")), wasted(one(records, "blocked:10"))
    claim("a hundred overlapping tables", "a-hundred-overlapping-tables",
          "100 reads without filters, about one with 10 bits", f"{none:.1f} and {ten:.2f}",
          abs(none - 100) < 1 and 0.5 < ten < 1.5)


@section
def five_levels():
    records = lines("five-levels")
    heading("Five full levels")
    print("Each ten times larger than the one above; all lookups miss.")
    print("[The plan](../../benches/plans/five-levels.toml).\n")
    rows, share = [], {}
    for budget in (8.0, 10.0, 12.0):
        uniform = one(records, "paired:{budget}", budget=budget)
        solved = one(records, "solved={budget}/key", budget=budget)
        share[budget] = wasted(solved) / wasted(uniform)
        for name, record in (("alike", uniform), ("solved", solved)):
            per_level = " ".join(f"{lv['filter_bytes'] * 8 / lv['keys']:.1f}" for lv in record["levels"])
            rows.append([f"{budget:g}, {name}", per_level, f"{bits(record):.2f}",
                         estimate(record["wasted_reads"]), small(record["predicted"]["wasted_reads"]),
                         f"{share[budget]:.2f}" if name == "solved" else ""])
    table(["bits a key", "bits of each level", "in all", "wasted reads a lookup", "predicted",
           "share of alike"], rows, words=2)
    print("![wasted reads by filter bytes](filters-claims-five-levels-waste-1.svg)\n")
    print("The tests of `crates/tuning` check that no choice of filters is better than the solver's by more")
    print("than 5%, by brute force over all filters of whole and half bits on every small tree; see [tuning")
    print("filters](../tuning.md).\n")
    claim("bits per level, solved", "five-full-levels", "at most a third of the waste at 10 bits",
          f"{share[10.0]:.2f} of it", share[10.0] <= 1 / 3)


@section
def last_level():
    records = lines("last-level")
    heading("No filter on the last level")
    print("A rule of thumb compared with the solver's filters of the same size, on three full levels below four")
    print("runs in level 0. [The plan](../../benches/plans/last-level.toml).\n")
    rules = ["L0=paired:12,L1-=paired:10,last=none", "L0=paired:15,L1-=paired:10,last=none",
             "L0=paired:15,L1-=paired:10"]
    rows, worst = [], 0
    for misses in (1.0, 0.5, 0.1):
        for rule in rules:
            by_hand = one(records, rule, misses=misses)
            solved = one(records, f"solved={rule}", misses=misses)
            gain = wasted(by_hand) / wasted(solved) if wasted(solved) else math.inf
            if rule.endswith("none"):
                worst = max(worst, gain)
            per_level = " ".join(f"{lv['filter_bytes'] * 8 / lv['keys']:.1f}" for lv in solved["levels"])
            rows.append([percent(misses), f"`{rule}`", f"{by_hand['filter_bytes'] / 1024:,.1f}",
                         estimate(by_hand["wasted_reads"]), per_level,
                         f"{solved['filter_bytes'] / 1024:,.1f}", estimate(solved["wasted_reads"]),
                         f"{gain:.2f}" if math.isfinite(gain) else ""])
    table(["misses", "rule", "KiB", "wasted reads a lookup", "solved: bits of each level", "KiB",
           "wasted reads a lookup", "times fewer"], rows, words=2)
    print("![every lookup misses](filters-claims-last-level-waste-1.svg)\n")
    print("![one in ten misses](filters-claims-last-level-waste-3.svg)\n")
    none = wasted(one(records, rules[1], misses=1.0))
    full = wasted(one(records, rules[2], misses=1.0))
    claim("no filter on the last level", "no-filter-on-the-last-level",
          "12 to 15 bits above, 10 below, none on the last",
          f"a missing key costs {none:.2f} reads, {full:.3f} with a filter there; "
          f"the solver's choice of the same bytes wastes up to {worst:.2f} times fewer", "depends on misses")


@section
def accuracy():
    records = lines("accuracy")
    heading("Predicted and measured")
    off = [abs(r["predicted"]["wasted_reads"] / wasted(r) - 1) for r in records]
    drawn = sum(r["cell"]["family"] == "drawn" for r in records)
    print(f"{len(records)} trees and filters, {drawn} of them drawn by a seed.")
    print("[The plan](../../benches/plans/accuracy.toml).\n")
    rows = [[r["cell"]["tree"]["name"], f"`{r['cell']['filters']}`", percent(r["cell"]["misses"]),
             small(r["predicted"]["wasted_reads"]), estimate(r["wasted_reads"]), f"{share * 100:.2f}%"]
            for r, share in zip(records, off, strict=True)]
    table(["tree", "filters", "misses", "predicted", "measured", "off"], rows, words=2)
    print("![measured by predicted](filters-claims-accuracy-predicted.svg)\n")
    print("![how far off](filters-claims-accuracy-off.svg)\n")
    near = sum(share <= 0.05 for share in off)
    claim("the model", "predicted-and-measured", "within 5% of what is measured",
          f"{near} of {len(off)}, the farthest {percent(max(off))} off", near == len(off))


def beside_others():
    """Rows of tables on the page filters-beside-others.md: heading, first cell, the other cells."""
    place = ""
    for line in (DOCS / "filters-beside-others.md").read_text().splitlines():
        if line.startswith("## "):
            place = line[3:]
        elif line.startswith("| "):
            first, *rest = [cell.strip().strip("*") for cell in line.strip("|").split("|")]
            yield place, first, rest


@section
def twice_as_slow():
    heading("Building and querying")
    print("These figures are from [filters compared with other crates](filters-beside-others.md), which")
    print("describes the measurement. Paired compared with blocked filters, ratios of times in one run:\n")
    rows = [[what.removeprefix("paired / blocked: "), *rest[:1], *rest[2:5]]
            for place, what, rest in beside_others()
            if what.startswith("paired / blocked: ") and "huge pages" not in rest[0]]
    table(["paired / blocked", "of", "median", "least", "greatest"], rows, words=2)

    def median(of, starts):
        return statistics.median(float(row[2]) for row in rows if row[0].startswith(starts))

    build = median(rows, "build")
    negative, positive = median(rows, "negative"), median(rows, "positive")
    claim("paired against blocked", "building-and-querying", "built and queried 2 times slower",
          f"built {build:.2f}, absent keys {negative:.2f}, present keys {positive:.2f} "
          "times (medians)", False)
    print("Ribbon compared with paired filters, from the same page, ns per key:\n")
    times = {}
    for place, first, rest in beside_others():
        # bits, rate, expected, measured, build, decode, bytes, negative, positive
        is_wanted = place.endswith((" 10 bits per key", " 23.4 bits per key"))
        is_wanted = is_wanted and not place.startswith("1,000 ")
        if is_wanted and first in ("paired, avx512", "ribbon") and len(rest) >= 9:
            times.setdefault(place, {})[first] = [float(rest[at]) for at in (4, 7, 8) if rest[at]]
    rows, ratios = [], []
    for place, of in times.items():
        if len(of) == 2 and all(len(values) == 3 for values in of.values()):
            pairs = list(zip(of["paired, avx512"], of["ribbon"], strict=True))
            ratio = [ribbon / paired for paired, ribbon in pairs]
            ratios.append(ratio)
            rows.append([place] + [f"{b:g} / {a:g} = {b / a:.1f}" for a, b in pairs])
    table(["ribbon / paired, avx512", "build", "absent", "present"], rows)
    spans = [f"{min(r[at] for r in ratios):.1f} to {max(r[at] for r in ratios):.1f}" for at in range(3)]
    claim("ribbon against paired", "building-and-querying", "4 to 6 times slower",
          f"built {spans[0]}, absent keys {spans[1]}, present keys {spans[2]} times", False)


@section
def hundredfold():
    records = lines("hundredfold")
    heading("Fill N, then 100 N reads")
    print("200,000 keys are written in random order and compacted by the store, then looked up 20 million")
    print("times, in three repeats; 37% of the lookups miss, as after a fill with keys drawn with replacement.")
    print("[The plan](../../benches/plans/hundredfold.toml).\n")
    specs = ("paired:23.4", "blocked:23.4", "ribbon:23.4")
    found = {spec: one(records, spec) for spec in specs}
    base = found["blocked:23.4"]["micros"]["mean"]
    table(["filters", "µs a lookup", "relative to blocked", "wasted reads a lookup", "bits a key"],
          [[f"`{spec}`", estimate(r["micros"]), f"{r['micros']['mean'] / base:.3f}",
            estimate(r["wasted_reads"]), f"{bits(r):.2f}"] for spec, r in found.items()])
    ratio = {spec: r["micros"]["mean"] / base for spec, r in found.items()}
    waste = wasted(found["blocked:23.4"]) / wasted(found["paired:23.4"])
    claim("fill N, then 100 N reads", "fill-n-then-100-n-reads", "paired, blocked, ribbon at 23.4 bits",
          f"time {ratio['paired:23.4']:.2f} : 1 : {ratio['ribbon:23.4']:.2f}; paired wastes "
          f"{waste:.1f} times fewer reads than blocked", "measured")


def pairs(name, workload):
    """Ratios of the time of a lookup, paired over blocked: wall time and CPU time."""
    times = {}
    for kind in ("blocked", "paired"):
        of = [r for r in lines(f"pairs-{name}-{kind}") if r["workload"] == workload]
        times[kind] = [(r["wall_seconds"], r.get("user_seconds", 0) + r.get("system_seconds", 0))
                       for r in of]
    both = zip(times["blocked"], times["paired"], strict=True)
    return list(zip(*[(p[0] / b[0], p[1] / b[1]) for b, p in both], strict=True))


def bound(ratios):
    """Geometric mean, and the upper end of its one-sided 95% interval."""
    logs = [math.log(ratio) for ratio in ratios]
    mean, error = statistics.fmean(logs), statistics.stdev(logs) / math.sqrt(len(logs))
    # Student's t with 29 degrees of freedom, one-sided.
    return math.exp(mean), math.exp(mean + 1.699 * error)


def pair_table(name):
    rows = []
    for workload in ("readrandom", "readmissing"):
        for clock, ratios in zip(("time", "processor"), pairs(name, workload), strict=True):
            mean, upper = bound(ratios)
            median = statistics.median(ratios)
            rows.append([f"{workload}, {clock}", str(len(ratios)), f"{median:.3f}", f"{mean:.3f}",
                         f"{upper:.3f}"])
    table(["paired / blocked", "pairs", "median", "mean", "95% upper bound"], rows)


@section
def two_percent():
    heading("Present keys")
    print("A million keys in a tree that the store built, all in memory, at 23.4 bits per key: the time of a")
    print("million lookups, paired over blocked, in 30 pairs of processes in alternation.\n")
    pair_table("same-bits")
    wall, upper = bound(pairs("same-bits", "readrandom")[0])
    fewer = (1 - 1 / wall) * 100
    mean = f"{fewer:.1f}% fewer" if fewer >= 0 else f"{-fewer:.1f}% more"
    claim("present keys", "present-keys", "at most 2% fewer lookups a second",
          f"{mean} on average; with 95%, at most {(1 - 1 / upper) * 100:.1f}% fewer",
          1 - 1 / upper <= 0.02)


@section
def instructions():
    heading("Instructions of a lookup")
    print("Instructions of a `get`, counted by valgrind, which supports AVX2 but not AVX-512;")
    print("50,000 keys in the last level (`deep`), or in four runs in level 0 (`runs`):\n")
    counts = {(r["filters"], r["row"]): r["instructions"] for r in lines("instructions")}
    rows, share = [], {}
    for row in ("deep-present", "deep-missing", "runs-present", "runs-missing"):
        b, p = counts["L0-=blocked:23.4", row], counts["L0-=paired:23.4", row]
        share[row] = p / b
        rows.append([row, f"{b:,.0f}", f"{p:,.0f}", f"{p / b:.3f}"])
    table(["lookups", "blocked", "paired", "ratio"], rows)
    claim("present keys, in instructions", "instructions-of-a-lookup", "at most 2% more",
          f"{(share['deep-present'] - 1) * 100:+.1f}% where keys are in the last level, "
          f"{(share['runs-present'] - 1) * 100:+.1f}% in four runs", share["deep-present"] <= 1.02)


@section
def defaults():
    heading("Default bits")
    print("The same with the default bits, 16 in level 0 and 12 below.\n")
    pair_table("defaults")
    print("Flushes and compactions with both kinds, and the whole program before and after its filters, are")
    print("on the page of [the filters' gain in the engine](filters-in-the-engine.md).\n")
    means = [bound(pairs("defaults", workload)[0])[0] for workload in ("readrandom", "readmissing")]
    claim("the usual workloads", "default-bits", "no unexpected loss at default bits",
          f"readrandom {means[0]:.3f}, readmissing {means[1]:.3f} of the time", max(means) < 1.05)


def head():
    environment = (lines("five-levels") or lines("accuracy"))[0]["environment"]
    print("# What is said about filters\n")
    print("Claims of the documents that these filters come from, and rules of thumb, each measured. This page")
    print("is written by the commands below; no figure in it is typed. See")
    print("[benches/claims](../../benches/claims/README.md).\n")
    print("```sh\nbenches/claims/run.sh counts target/release/trommel OUT")
    print("benches/claims/run.sh times target/release/trommel OUT")
    print("benches/claims/run.sh page target/release/trommel OUT\n```\n")
    print(f"* Processor: {environment.get('cpu', 'unknown')}, {environment['cores']} threads")
    print(f"* Compiler: {environment['rustc']}; kernel: {environment['kernel']}")
    print("* ± is half of the 95% interval, from the variance between stores\n")


def main():
    import contextlib
    import io

    body = io.StringIO()
    left_out = []
    with contextlib.redirect_stdout(body):
        for function in SECTIONS:
            part = io.StringIO()
            try:
                with contextlib.redirect_stdout(part):
                    function()
            except (FileNotFoundError, IndexError, KeyError, ValueError, SystemExit,
                    statistics.StatisticsError) as error:
                left_out.append(part.getvalue().split("\n", 1)[0].removeprefix("## "))
                print(f"left out: {function.__name__}: {error!r}", file=sys.stderr)
                continue
            print(part.getvalue(), end="")
    head()
    table(["claim", "what is said", "what was found", ""], VERDICTS, words=4)
    if left_out:
        print("Not measured yet, for want of a machine with nothing else to do: "
              f"{'; '.join(left_out)}. The second command measures them.\n")
    print(body.getvalue().rstrip())


main()
