"""The table of ./run bench: what is fair first, then what is not, each ratio with its figures."""
import os
import platform
import re
import statistics
from pathlib import Path

# Kinds of comparisons in the order of the report, with what their rows have in common.
KINDS = {
    "limit": ("The limit", "What no peer can pass: the time of a step's matrix products alone (`funicular bench --floor`), as a "
              "share of the time of our step."),
    "own": ("Fewer bits", "Ours beside ours in fp32: fewer bits should never be slower."),
    "like": ("Like for like", "The same rows and the same bits on both sides, the peer with its fastest options and without "
             "padding that it can avoid: rows of similar length in a batch, or rows of one length."),
    "tuned": ("Tuned, but padded", "The peer with its fastest options and 16 bits, but with rows in batches as they were drawn, "
              "or in another precision than ours."),
    "plain": ("As it comes", "What a user gets who changes nothing: the peer's defaults."),
}


def middle(comparison, runs: list[dict]) -> str:
    """The figures of the run in the middle; of two, of the smaller."""
    ordered = sorted(runs, key=lambda run: run[comparison.key])
    return comparison.figure(ordered[(len(ordered) - 1) // 2]) if ordered else "–"


def summary(comparison) -> dict:
    pairs = [(a, b) for a, b in comparison.rows if a and (b or not comparison.peer)]
    ratios = [comparison.ratio(a, b) for a, b in pairs]
    ours, peers = ([row[i] for row in comparison.rows if row[i]] for i in (0, 1))
    what, our_title, peer_title = comparison.titles
    return {"name": comparison.name, "kind": comparison.kind, "what": what, "ours": our_title, "peer": peer_title,
            "pairs": len(pairs), "ratio": statistics.median(ratios) if ratios else None, "ratios": ratios,
            "unit": comparison.unit, "goal": comparison.goal, "our_figures": middle(comparison, ours),
            "peer_figures": middle(comparison, peers) if comparison.peer else "",
            "peer_options": peers[0].get("options") if peers else None,
            "versions": peers[0].get("versions") if peers else None, "our_runs": ours, "peer_runs": peers,
            "largest_load_before": max((side["load_before"] for side in ours + peers), default=None)}


def machine() -> str:
    try:
        model = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)[1]
        memory = int(re.search(r"^MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text(), re.MULTILINE)[1]) / 1e6
        return f"{model}, {len(os.sched_getaffinity(0))} cores, {memory:.0f} GB"
    except (OSError, TypeError):
        return platform.processor()


def line(row: dict) -> str:
    ratio = "–"
    if row["ratio"] is not None:
        form = "{:.0f} %" if row["unit"] == "%" else "{:.2f}×"
        ratio = f"**{form.format(row['ratio'])}** ({min(row['ratios']):.2f} – {max(row['ratios']):.2f})"
    goal = (row["goal"] + (" %" if row["unit"] == "%" else "×")) if row["goal"] else ""
    return (f"| {row['what']} | {row['ours']} | {row['peer']} | {ratio} | {goal} | {row['our_figures']} | "
            f"{row['peer_figures']} | {row['pairs']} |")


def in_order(rows: list[dict]) -> list[dict]:
    """By kind, and as they came within one."""
    return sorted(rows, key=lambda row: list(KINDS).index(row["kind"]))


def options_of_peers(rows: list[dict]) -> list[str]:
    lines = []
    for row in rows:
        if row["peer_options"]:
            options = ", ".join(f"{name} {value}" for name, value in row["peer_options"].items() if value not in (None, {}))
            lines.append(f"- {row['what']}, {row['peer']}: {options}; "
                         + ", ".join(f"{name} {version}" for name, version in row["versions"].items()))
    return lines


def table(rows: list[dict]) -> str:
    lines = [f"Machine: {machine()}. Each ratio is the median of the ratios of paired runs (smallest – largest)."]
    for kind, (title, text) in KINDS.items():
        own = [row for row in rows if row["kind"] == kind]
        if own:
            lines += ["", f"## {title}", "", text, "",
                      "| what | ours | peer | ratio | goal | our figures | the peer's | pairs |", "|---|---|---|---|---|---|---|---|"]
            lines += map(line, own)
    busy = [row["name"] for row in rows if (row["largest_load_before"] or 0) > 1.5 * os.cpu_count()]
    if busy:
        lines += ["", f"The machine was busy with other work before some runs of: {', '.join(busy)}."]
    return "\n".join([*lines, "", "Options of the peers:", "", *options_of_peers(rows)]) + "\n"
