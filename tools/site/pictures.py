#!/usr/bin/env python3
"""Draws pictures of the pages into FOLDER: strategies.svg (from the table of the page), packing.svg, masking.svg.

usage: pictures.py FOLDER
"""

import pathlib
import re
import sys
from xml.sax.saxutils import escape

ROOT = pathlib.Path(__file__).resolve().parents[2]
WIDTH, LEFT = 860, 16
BLUE, ORANGE, GREEN, GREY = "#1f6f8b", "#e07a3f", "#6b8e23", "#d9d9d9"


def text(x, y, words, size=13, extra=""):
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" {extra}>{escape(words)}</text>'


def box(x, y, width, height, fill):
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{fill}" stroke="white"/>'


def picture(title, height, parts):
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
            f'font-family="sans-serif" fill="#222">\n<rect width="100%" height="100%" fill="white"/>\n')
    return head + "\n".join([text(LEFT, 26, title, 16, 'font-weight="bold"'), *parts]) + "\n</svg>\n"


def strategies():
    """Bytes of a rank of four, from the rows of docs/explanation/strategies.md."""
    page = (ROOT / "docs/explanation/strategies.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (?:any|4) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|", page, re.M)
    kinds = list(zip(("weights", "gradients", "optimiser state", "gathered for a while"), (BLUE, ORANGE, GREEN, GREY)))
    scale, x, y, parts = 0.38, LEFT + 70, 46, []
    for kind, color in kinds:
        parts += [box(x, y, 12, 12, color), text(x + 18, y + 11, kind, 12)]
        x += 40 + 8 * len(kind)
    for name, *values in rows:
        x, y = LEFT + 70, y + 32
        parts.append(text(LEFT, y + 16, name))
        for value, (_, color) in zip(map(int, values), kinds):
            parts.append(box(x, y, value * scale, 22, color))
            x += value * scale
        parts.append(text(x + 8, y + 16, f"{sum(map(int, values)):,} MB", 12))
    return picture("One of four ranks, BERT-base in bf16 with AdamW", y + 40, parts)


def packing():
    lengths, unit, height, parts = (12, 5, 9, 4, 7), 20, 22, []
    colors = (BLUE, ORANGE, GREEN, "#8a6fb3", "#b8860b")
    longest, total = max(lengths), sum(lengths)
    parts.append(text(LEFT, 52, f"Padded: {len(lengths)} × {longest} = {len(lengths) * longest} tokens are computed", 13))
    y = 60
    for length, color in zip(lengths, colors):
        for place in range(longest):
            parts.append(box(LEFT + place * unit, y, unit, height, color if place < length else GREY))
        y += height
    parts.append(text(LEFT + longest * unit + 12, 60 + height * len(lengths) / 2, "grey: padding", 12, 'fill="#777"'))
    parts.append(text(LEFT, y + 30, f"Packed: {total} tokens are computed", 13))
    x, y = LEFT, y + 38
    for length, color in zip(lengths, colors):
        for _ in range(length):
            parts.append(box(x, y, unit, height, color))
            x += unit
    return picture("Five rows of one batch", y + height + 16, parts)


MASKED = (  # lines of funicular mask --show --mlm-probability 0.3, of the model that ./run setup leaves
    ("token", "the back{pro|[MASK]}pagation of {gradient|[MASK]}s through {transformers|[MASK]} is surprisingly straightforward {.|.}"),
    ("whole-word", "the {backpropagation|[MASK] urged [MASK] [MASK]} of gradients through {transformers|[MASK]} is surprisingly straightforward {.|[MASK]}"),
    ("ngram", "the {backpropagation|[MASK] [MASK] [MASK] [MASK]} of gradients through transformers is surprisingly straightforward ."),
    ("span", "the backpropagation {of gradients through|[MASK] [MASK] [MASK] [MASK]} transformers is surprisingly straightforward ."))


def masking():
    advance, y, parts = 7.02, 46, []
    mono = 'font-family="monospace" xml:space="preserve"'
    for name, line in MASKED:
        x = LEFT + 90
        parts += [text(LEFT, y + 16, name, 13, 'font-weight="bold"'), text(LEFT, y + 38, "shown", 11, 'fill="#777"')]
        for plain, right, shown in re.findall(r"([^{]+)|\{([^|]*)\|([^}]*)\}", line):
            words, below = plain or right, plain or shown
            # What stood there above, what the model reads below: both as wide as the longer one.
            width = advance * max(len(words), len(below))
            if right:
                parts += [box(x - 1, y, width + 2, 46, "#fbe3d6")]
            for row, part in ((16, words), (38, below)):
                fit = f'textLength="{advance * len(part):g}" lengthAdjust="spacingAndGlyphs"'
                parts.append(text(x, y + row, part, 11.5, f'{mono} {fit}' + (' fill="#777"' if row == 38 and not right else "")))
            x += width
        y += 60
    return picture("What stood there, and what the model reads", y, parts)


PICTURES = {"strategies.svg": strategies, "packing.svg": packing, "masking.svg": masking}


def main(arguments):
    if len(arguments) != 1 or arguments[0] in ("-h", "--help"):
        print(__doc__.strip())
        return 0 if arguments[:1] in (["-h"], ["--help"]) else 2
    for name, draw in PICTURES.items():
        (pathlib.Path(arguments[0]) / name).write_text(draw(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
