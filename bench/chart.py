#!/usr/bin/env python3
"""Draws the chart of the README from measured ratios.

usage: chart.py DATA.toml CHART.svg

DATA.toml has a title, a note, and groups of bars, each a label and a ratio; docs/project/measurements/ holds what was measured.
"""

import pathlib
import sys
import tomllib
from xml.sax.saxutils import escape

WIDTH, LABELS, ROW, LEFT, RIGHT = 860, 430, 24, 16, 56
COLORS = ("#1f6f8b", "#e07a3f", "#6b8e23")


def text(x, y, words, size=13, extra=""):
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" {extra}>{escape(words)}</text>'


def draw(data):
    """The chart as the text of an SVG file."""
    groups = data["group"]
    largest = max(ratio for group in groups for _, ratio in group["bars"])
    scale = (WIDTH - LEFT - LABELS - RIGHT) / largest
    zero, y = LEFT + LABELS, 26
    parts = [text(LEFT, y, data["title"], 16, 'font-weight="bold"'), text(LEFT, y + 20, data["note"], 11, 'fill="#555"')]
    y += 38
    top = y
    for number, group in enumerate(groups):
        parts.append(text(LEFT, y + 16, group["name"], 12, 'font-weight="bold"'))
        y += ROW
        for label, ratio in group["bars"]:
            parts.append(text(zero - 8, y + 15, label, 12, 'text-anchor="end"'))
            parts.append(f'<rect x="{zero}" y="{y + 3}" width="{ratio * scale:.1f}" height="{ROW - 7}" '
                         f'fill="{COLORS[number % len(COLORS)]}"/>')
            parts.append(text(round(zero + ratio * scale + 6, 1), y + 15, f"{ratio:.2f}".rstrip("0").rstrip(".") + " ×", 12))
            y += ROW
        y += 8
    one = zero + scale
    parts.append(f'<line x1="{one:.1f}" y1="{top}" x2="{one:.1f}" y2="{y}" stroke="#999" stroke-dasharray="3 3"/>')
    parts.append(text(round(one, 1), y + 12, "as fast", 10, 'text-anchor="middle" fill="#777"'))
    body = "\n".join(parts)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y + 20}" viewBox="0 0 {WIDTH} {y + 20}" '
            f'font-family="sans-serif" fill="#222">\n<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n')


def main(arguments):
    if len(arguments) != 2 or arguments[0] in ("-h", "--help"):
        print(__doc__.strip())
        return 0 if arguments[:1] in (["-h"], ["--help"]) else 2
    source, target = map(pathlib.Path, arguments)
    target.write_text(draw(tomllib.loads(source.read_text(encoding="utf-8"))), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
