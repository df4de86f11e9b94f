#!/usr/bin/env python3
"""Draws the tables of the book that begin with `<!-- plot: FILE; x: …; y: …; title: … -->`, with both axes by powers.

Without arguments it writes the pictures, with --check it fails where one is not that of its table.
"""

import html
import math
import pathlib
import re
import sys

SOURCE = pathlib.Path(__file__).parent / "src"
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 900, 460, 80, 860, 50, 390
# Told apart also by those who do not see all colours (Okabe and Ito).
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7"]


def short(value):
    """A mark of an axis."""
    for unit, name in [(10**6, " M"), (10**3, " K")]:
        if value >= unit:
            return f"{value / unit:g}{name}"
    return f"{value:g}"


def axis(values, start, end):
    """The places of values between whole powers of ten, and these powers."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)
    place = lambda value: start + (math.log10(value) - low) / (high - low) * (end - start)
    return place, [10.0**power for power in range(low, high + 1)]


def picture(options, rows):
    positions, series = [float(cell) for cell in rows[0][1:]], rows[2:]
    values = [[float(cell) for cell in row[1:]] for row in series]
    x, x_marks = axis(positions, LEFT, RIGHT)
    y, y_marks = axis([value for line in values for value in line], BOTTOM, TOP)
    text = lambda x, y, words, anchor="middle": f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(words)}</text>'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        text(WIDTH / 2, 24, options["title"]),
    ]
    for mark in x_marks:
        parts.append(f'<line x1="{x(mark):.1f}" y1="{TOP}" x2="{x(mark):.1f}" y2="{BOTTOM}" stroke="#ddd"/>')
        parts.append(text(x(mark), BOTTOM + 18, short(mark)))
    for mark in y_marks:
        parts.append(f'<line x1="{LEFT}" y1="{y(mark):.1f}" x2="{RIGHT}" y2="{y(mark):.1f}" stroke="#ddd"/>')
        parts.append(text(LEFT - 8, y(mark) + 4, short(mark), "end"))
    parts.append(text((LEFT + RIGHT) / 2, BOTTOM + 38, options["x"]))
    parts.append(text(LEFT, TOP - 10, options["y"], "start"))
    for number, (row, line) in enumerate(zip(series, values)):
        colour = COLOURS[number % len(COLOURS)]
        places = [(x(position), y(value)) for position, value in zip(positions, line)]
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.extend(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"/>' for a, b in places)
        at = LEFT + number * 200
        parts.append(f'<rect x="{at}" y="{HEIGHT - 22}" width="14" height="4" fill="{colour}"/>')
        parts.append(text(at + 20, HEIGHT - 15, row[0], "start"))
    return "\n".join(parts) + "\n</svg>\n"


def main():
    outdated = []
    for page in sorted(SOURCE.glob("*.md")):
        for said, table in re.findall(r"<!-- plot: (.*?) -->\n((?:\|.*\n)+)", page.read_text()):
            file, *options = said.split("; ")
            options = dict(option.split(": ", 1) for option in options)
            rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
            drawn, path = picture(options, rows), SOURCE / file
            if path.exists() and path.read_text() == drawn:
                continue
            if "--check" in sys.argv[1:]:
                outdated.append(f"{file} is not the picture of its table in {page.name}: run docs/book/plots.py")
            else:
                path.write_text(drawn)
    sys.exit("\n".join(outdated) or 0)


main()
