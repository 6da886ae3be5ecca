"""The table of killed and surviving mutants in docs/project/testing.md."""

from __future__ import annotations

from pathlib import Path

from catalogue import Invalid
from judge import Verdict

BEGIN, END = "<!-- mutants: written by ./run mutants -->", "<!-- mutants: end -->"
LAYERS = ("base", "text", "format", "data", "core", "comm", "nn", "objective", "optim", "parallel", "train", "task",
          "cli")


def summary(verdicts: list[Verdict]) -> str:
    killed = sum(verdict.state == "killed" for verdict in verdicts)
    survived = [verdict for verdict in verdicts if verdict.state == "survived"]
    explained = sum(bool(verdict.mutant.explained) for verdict in survived)
    text = f"{len(verdicts)} mutants: {killed} killed, {len(survived)} survived"
    if explained:
        text += f" ({explained} explained)"
    if broken := sum(verdict.state == "broken" for verdict in verdicts):
        text += f", {broken} BROKEN: mend these mutants or their tests"
    other = len(verdicts) - killed - len(survived) - broken
    return text + (f", {other} not testable on this processor" if other else "")


def row(verdict: Verdict, why: str) -> str:
    return f"- `{verdict.mutant.layer}/{verdict.mutant.name}` (`funicular/{verdict.mutant.file}`): {why}"


def table(verdicts: list[Verdict], isa: str) -> str:
    """Markdown: a row a layer, then the survivors with their explanations."""
    layers = sorted({verdict.mutant.layer for verdict in verdicts},
                    key=lambda layer: LAYERS.index(layer) if layer in LAYERS else len(LAYERS))
    lines = ["| layer | mutants | killed | survived | not testable here |", "|---|--:|--:|--:|--:|"]
    for layer in [*layers, ""]:
        mine = [verdict for verdict in verdicts if verdict.mutant.layer == layer or not layer]
        counts = [sum(verdict.state == state for verdict in mine) for state in ("killed", "survived", "not testable here")]
        lines.append(f"| {f'`{layer}`' if layer else '**all**'} | {len(mine)} | " + " | ".join(map(str, counts)) + " |")
    killed, survived, _ = counts
    lines += ["", f"{100 * killed / max(1, killed + survived):.1f} % of those that this processor ({isa}) can test are killed."]
    survivors = [verdict for verdict in verdicts if verdict.state == "survived"]
    if survivors:
        lines += ["", "Survivors:", ""]
    for verdict in survivors:
        lines.append(row(verdict, verdict.mutant.explained or "not explained yet"))
    by_chance = [verdict for verdict in verdicts if verdict.state == "killed" and verdict.mutant.chance]
    if by_chance:
        lines += ["", "Killed here, and not by every run:", ""]
    lines += [row(verdict, verdict.mutant.chance) for verdict in by_chance]
    return "\n".join(lines)


def write(document: Path, text: str):
    content = document.read_text(encoding="utf-8")
    before, begin, rest = content.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise Invalid(f"{document} lacks the lines '{BEGIN}' and '{END}' that the table goes between")
    document.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")
