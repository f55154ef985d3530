"""Draws the plots of docs/benchmarks: storms over the number of readers, simulated fields over that of nodes.

Plain SVG; the storms' follow the reader's light or dark mode. Nothing but python's own library.
Caller: scripts/figures.
"""

import math
from html import escape

WIDTH, HEIGHT = 860, 500
LEFT, RIGHT, TOP, BOTTOM = 68, 236, 100, 56
READERS = 50
# Room between two labels at the right end of lines.
LABEL_STEP = 17
PAYLOAD = 1448 / 1514

# Each for light and for dark paper.
INK, SOFT, FAINT, PAPER = ("#1f2328", "#e6edf3"), ("#59636e", "#9198a1"), ("#d8dee4", "#2f353d"), ("#ffffff", "#0d1117")
BLUE, SKY, AMBER = ("#0550ae", "#58a6ff"), ("#2f8fe8", "#a5d6ff"), ("#b35900", "#f0a04b")
GREEN, VIOLET, ROSE, STONE = ("#1a7f37", "#56d364"), ("#8250df", "#d2a8ff"), ("#bf3989", "#ff9bce"), ("#6e7781", "#8b949e")
# name: colour, width of the line, its dashes.
STYLES = {
    "cold": (BLUE, 3, ""), "warm": (SKY, 3, ""), "chain": (STONE, 2, "2 4"), "nbdkit": (AMBER, 2, ""),
    "libtorrent": (VIOLET, 2, "7 4"), "dnbd3-chain": (GREEN, 2, "7 4"), "dnbd3-tree": (ROSE, 2, "7 4"), "original": (SOFT, 2, "7 4"),
}


class Series:
    """A line: its points by number of readers, and what it is called at its end."""

    def __init__(self, style, label, points, measured=True, spread=None, beside=None):
        self.style, self.label, self.measured = style, label, measured
        # A thinner line that belongs to this one.
        self.beside = sorted((beside or {}).items())
        self.points = sorted(points.items())
        self.spread = spread or {}


def recorded(told):
    """The newest entry of each row of the record."""
    rows = {}
    for run in told["runs"]:
        for entry in run["rows"]:
            rows[entry["row"]] = entry
    return list(rows.values())


def pick(entries, what, value):
    """The values of the storms with a name, by number of readers."""
    found = [entry for entry in entries if entry["settings"]["mode"] == "storm" and entry["what"] == what]
    return {entry["settings"]["readers"]: value(entry) for entry in found}


def least_and_most(entry):
    values = [sample["efficiency"] for sample in entry["samples"]]
    return min(values), max(values)


def efficiency(told):
    entries = recorded(told)
    ours = [("cold", "vfield, cold", "cold, store 100 %"), ("warm", "vfield, warm (6 %)", "warm, store 6 %"),
            ("chain", "chain", "chain"), ("nbdkit", "nbdkit", "nbdkit")]
    lines = []
    for style, label, what in ours:
        points = pick(entries, what, lambda entry: entry["median"]["efficiency"])
        lines.append(Series(style, label, points, spread=pick(entries, what, least_and_most)))
    for known in told["reference"]:
        points = {int(readers): value for readers, value in known["efficiency"].items()}
        own = next((line for line in lines if line.style == known["id"]), None)
        if own is None:
            lines.append(Series(known["id"], known["label"], points, measured=False))
        else:
            # The last measurement counts.
            own.label, own.points = known["label"], sorted({**points, **dict(own.points)}.items())
    most = max([1.0] + [value for line in lines for _, value in line.points])
    chart = Chart("How much of its links a field uses when everybody reads everything at once",
                  ["payload delivered / (time until the last reader ends × readers × rate of a link)",
                   "filled: medians of this record, with their range; hollow: others, measured earlier in the same kind of field"],
                  "efficiency",
                  1.2 if most > 1.05 else 1.05, 0.2, lambda value: f"{value:.1f}",
                  lambda value: f"{value:.3f}" if value < 0.1 else f"{value:.2f}")
    chart.rule(PAYLOAD, "all that headers leave")
    return chart.draw(lines)


def processor(told):
    entries = recorded(told)
    lines = []
    for style, label, what in [("cold", "vfield, cold", "cold, store 100 %"), ("warm", "vfield, warm (6 %)", "warm, store 6 %"),
                               ("chain", "ideal chain of relays", "chain"), ("nbdkit", "nbdkit, one server", "nbdkit")]:
        spent = {kind: pick(entries, what, lambda entry, kind=kind: entry["median"]["cpu_s_per_gb"][kind]) for kind in ("daemons", "machine")}
        lines.append(Series(style, label, spent["daemons"], beside=spent["machine"]))
    most = max([1.0] + [value for line in lines for _, value in line.points + line.beside])
    step = next(step for step in (0.5, 1, 2, 5, 10, 20, 50, 100) if most / step <= 7)
    chart = Chart("Processor time for each GB that a storm delivers",
                  ["lines: the processes that deliver; dotted: all of the machine, readers and emulated links included"],
                  "seconds of processor for each GB", step * (int(most / step) + 1), step, lambda value: f"{value:g}",
                  lambda value: f"{value:.1f}")
    return chart.draw(lines)


class Chart:
    """A frame with readers along the bottom."""

    def __init__(self, title, subtitle, axis, top, step, number, exact):
        self.title, self.subtitle, self.axis = title, subtitle, axis
        # How numbers are shown along the axis, and beside the name of a line.
        self.top, self.step, self.number, self.exact = top, step, number, exact
        self.rules = []

    def x(self, readers):
        return LEFT + (WIDTH - LEFT - RIGHT) * readers / READERS

    def y(self, value):
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * min(value, self.top) / self.top

    def rule(self, value, label):
        self.rules.append((value, label))

    def draw(self, lines):
        lines = [line for line in lines if line.points]
        # What this is about lies on top.
        drawn = [part for line in reversed(lines) for part in self.line(line)]
        parts = [*self.frame(), *drawn, *self.labels(lines)]
        name = escape(f"{self.title}: {'; '.join(self.subtitle)}", quote=True)
        return "\n".join([
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
            f'role="img" aria-label="{name}">', f"<title>{name}</title>", "<style>", *STYLE, "</style>",
            f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}" rx="8"/>', *parts, "</svg>", ""])

    def frame(self):
        parts = [text(LEFT - 46, 34, self.title, "title"), *(text(LEFT - 46, 56 + 18 * row, words, "soft") for row, words in enumerate(self.subtitle))]
        right, floor = WIDTH - RIGHT, self.y(0)
        value = 0.0
        while value <= self.top + 1e-9:
            kind = "axis" if value == 0 else "grid"
            parts.append(f'<path class="{kind}" d="M{LEFT} {self.y(value):.1f}H{right}"/>')
            parts.append(text(LEFT - 10, self.y(value) + 4, self.number(value), "soft", "end"))
            value += self.step
        for readers in (1, 10, 20, 30, 40, 50):
            parts.append(f'<path class="axis" d="M{self.x(readers):.1f} {floor:.1f}v5"/>')
            parts.append(text(self.x(readers), floor + 21, str(readers), "soft", "middle"))
        parts.append(text((LEFT + right) / 2, HEIGHT - 14, "readers", "soft", "middle"))
        middle = (TOP + HEIGHT - BOTTOM) / 2
        parts.append(f'<text class="soft" text-anchor="middle" transform="translate(24 {middle:.0f}) rotate(-90)">{escape(self.axis)}</text>')
        for value, label in self.rules:
            parts.append(f'<path class="rule" d="M{LEFT} {self.y(value):.1f}H{right}"/>')
            parts.append(text(right - 6, self.y(value) - 3, label, "small", "end"))
        return parts

    def line(self, line):
        _, width, dashes = STYLES[line.style]
        places = [(self.x(readers), self.y(value)) for readers, value in line.points]
        way = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        parts = [f'<path class="line {line.style}" stroke-width="{width}"{dashed} d="{way}"/>'] if len(places) > 1 else []
        if len(line.beside) > 1:
            beside = "M" + "L".join(f"{self.x(readers):.1f} {self.y(value):.1f}" for readers, value in line.beside)
            parts.append(f'<path class="line {line.style}" stroke-width="1.5" stroke-dasharray="1 4" d="{beside}"/>')
        for readers, value in line.beside:
            parts.append(f'<circle class="ring {line.style}" cx="{self.x(readers):.1f}" cy="{self.y(value):.1f}" r="2.5"/>')
        for readers, (least, most) in line.spread.items():
            if most - least > 0.01:
                parts.append(f'<path class="line {line.style}" stroke-width="1.5" d="M{self.x(readers):.1f} {self.y(least):.1f}V{self.y(most):.1f}"/>')
        for (x, y), (readers, value) in zip(places, line.points):
            kind = "dot" if line.measured else "ring"
            told = escape(f"{line.label}, {readers} readers: {value:.3g}")
            parts.append(f'<circle class="{kind} {line.style}" cx="{x:.1f}" cy="{y:.1f}" r="{4.5 if line.measured else 3.8}"><title>{told}</title></circle>')
        return parts

    def labels(self, lines):
        """The names at the ends of lines, moved apart where they would meet, with a thin line to where they belong."""
        wanted = sorted(((self.y(line.points[-1][1]), line) for line in lines), key=lambda place: place[0])
        places = []
        for y, _ in wanted:
            places.append(max(y, places[-1] + LABEL_STEP) if places else y)
        # A label that was pushed past the floor pushes back.
        floor = self.y(0) + 6
        for index in range(len(places) - 1, -1, -1):
            places[index] = min(places[index], floor)
            floor = places[index] - LABEL_STEP
        parts = []
        for place, (y, line) in zip(places, wanted):
            readers, value = line.points[-1]
            start, right = self.x(readers) + 8, WIDTH - RIGHT + 22
            parts.append(f'<path class="lead {line.style}" d="M{start:.1f} {y:.1f}H{max(start, right - 14):.1f}L{right - 3} {place:.1f}"/>')
            shown = f'<tspan class="soft" dx="6">{self.exact(value)}</tspan>'
            parts.append(f'<text class="label {line.style}" x="{right}" y="{place + 4:.1f}">{escape(line.label)}{shown}</text>')
        return parts


def text(x, y, words, kind, anchor="start"):
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def colours(side):
    """The rules of one mode."""
    rules = [f".paper{{fill:{PAPER[side]}}}", f"text{{fill:{INK[side]}}}", f".soft,.small{{fill:{SOFT[side]}}}",
             f".grid{{stroke:{FAINT[side]}}}", f".axis{{stroke:{SOFT[side]}}}", f".rule{{stroke:{SOFT[side]}}}", f".ring{{fill:{PAPER[side]}}}"]
    for name, (pair, _, _) in STYLES.items():
        rules.append(f".{name}{{stroke:{pair[side]}}}.dot.{name}{{fill:{pair[side]}}}text.{name}{{fill:{pair[side]};stroke:none}}")
    return rules


STYLE = []


def style(theme):
    shapes = ['text{font:13px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}', ".title{font-size:17px;font-weight:600}",
              ".label{font-weight:600}", ".label .soft{font-weight:400}", ".small{font-size:11px}",
              ".line,.grid,.axis,.rule,.lead{fill:none}", ".line{stroke-linejoin:round;stroke-linecap:round}",
              ".rule{stroke-dasharray:1 3}", ".lead{stroke-width:1;opacity:.5;stroke-dasharray:1 4}", ".ring{stroke-width:2}"]
    if theme != "auto":
        return shapes + colours(("light", "dark").index(theme))
    return [*shapes, *colours(0), "@media (prefers-color-scheme:dark){", *colours(1), "}"]


def storms(told, theme):
    """The storms' plots by name."""
    STYLE[:] = style(theme)
    return {"efficiency": efficiency(told), "processor": processor(told)}


# Which rows of the simulator a line joins, and in what colour.
SCALE_LINES = {"cold": ("one zone, cold", "#0550ae"), "warm": ("one zone, warm, stores of 6 %", "#2f8fe8"), "z50": ("zones of 50, cold", "#b35900")}
SCALE_PLOTS = {
    "time": ("When the last reader ends, in times that a link needs for the image", lambda row: row["finish_over_limit"]),
    "origin": ("Images that the origin sends", lambda row: row["origin_copies"]),
    "control": ("Bytes of control for each hundred of payload", lambda row: row["control_share"] * 100),
}


def scale(rows):
    """The simulator's plots by name."""
    return {f"scale-{name}": scale_plot(title, value, rows) for name, (title, value) in SCALE_PLOTS.items()}


def scale_plot(title, value, rows):
    width, height, left, right_gap, top_gap, bottom = 720, 380, 60, 220, 60, 50
    lines = {}
    for row, report in rows.items():
        kind = row.split("-")[0]
        if kind in SCALE_LINES:
            lines.setdefault(kind, []).append((report["nodes"], value(report)))
    nodes = sorted({n for points in lines.values() for n, _ in points})
    low, high = math.log10(nodes[0]), math.log10(nodes[-1])
    top = max(y for points in lines.values() for _, y in points) * 1.1
    floor, right = height - bottom, width - right_gap

    def x(n):
        return left + (right - left) * (math.log10(n) - low) / (high - low)

    def y(v):
        return floor - (floor - top_gap) * v / top

    parts = [f'<text x="{left - 40}" y="30" font-size="16" font-weight="600">{escape(title)}</text>']
    step = 10 ** math.floor(math.log10(top / 2))
    step *= 2 if top / step > 8 else 1
    for tick in range(int(top / step) + 1):
        at = y(tick * step)
        parts.append(f'<path d="M{left} {at:.1f}H{right}" stroke="#d8dee4"/><text x="{left - 8}" y="{at + 4:.1f}" text-anchor="end">{tick * step:g}</text>')
    for n in nodes:
        parts.append(f'<text x="{x(n):.1f}" y="{floor + 20}" text-anchor="middle">{n}</text>')
    parts.append(f'<text x="{(left + right) / 2}" y="{height - 8}" text-anchor="middle">nodes</text>')
    ends = []
    for kind, points in sorted(lines.items(), key=lambda line: y(sorted(line[1])[-1][1])):
        label, colour = SCALE_LINES[kind]
        points.sort()
        way = "L".join(f"{x(n):.1f} {y(v):.1f}" for n, v in points)
        parts.append(f'<path d="M{way}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x(n):.1f}" cy="{y(v):.1f}" r="4" fill="{colour}"><title>{n}: {v:.3g}</title></circle>' for n, v in points]
        ends.append(max(y(points[-1][1]) + 4, ends[-1] + 17 if ends else 0))
        parts.append(f'<text x="{right + 14}" y="{ends[-1]:.1f}" fill="{colour}">{escape(label)}</text>')
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" font-family="sans-serif" font-size="13">',
                     f"<title>{escape(title)}</title>", f'<rect width="{width}" height="{height}" fill="#ffffff"/>', *parts, "</svg>", ""])
