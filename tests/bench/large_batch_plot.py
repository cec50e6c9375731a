"""The plot of large_batch as SVG, without a plotting library: the same file from the same results."""

import html
import math
import statistics

COLORS = ("#1f77b4", "#7f7f7f", "#ff7f0e", "#2ca02c", "#d62728")
WIDTH, HEIGHT = 900, 380
TOP, BOTTOM = 40, 300  # of both panels
LOWEST = 98.0  # percent; results below are drawn at the bottom edge


def text(x, y, words, anchor="middle", more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{html.escape(words)}</text>'


def dot(x, y, color):
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{color}" fill-opacity="0.75"/>'


def line(x1, y1, x2, y2, color, width=1.0):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}" stroke-width="{width}"/>'


class Panel:
    """A rectangle with a vertical axis of percentages."""

    def __init__(self, left, right, lowest, highest, title):
        self.left, self.right, self.lowest, self.highest = left, right, lowest, highest
        self.parts = [text((left + right) / 2, TOP - 14, title, more='font-weight="bold"')]
        step = 0.5 if highest - lowest > 1.5 else 0.2
        for number in range(math.ceil(lowest / step - 1e-9), math.floor(highest / step + 1e-9) + 1):
            self.parts += [line(left, self.y(number * step), right, self.y(number * step), "#dddddd"),
                           text(left - 6, self.y(number * step) + 4, f"{number * step:.1f}%", "end")]

    def y(self, percent):
        share = (max(percent, self.lowest) - self.lowest) / (self.highest - self.lowest)
        return BOTTOM - share * (BOTTOM - TOP)


def limits(values):
    """Lower and upper end of an axis of percentages."""
    return max(LOWEST, math.floor(5 * min(values)) / 5 - 0.2), math.ceil(5 * max(values)) / 5 + 0.1


def search_panel(cases, searched):
    values = [100 * (row["accuracy"] or 0) for row in searched]
    panel = Panel(60, 430, *limits(values), "Search: held-out accuracy by learning rate")
    rates = [row["learning_rate"] for row in searched]
    low, high = math.log10(min(rates)) - 0.1, math.log10(max(rates)) + 0.1

    def x(rate):
        return panel.left + (math.log10(rate) - low) / (high - low) * (panel.right - panel.left)

    for rate in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5):
        if low <= math.log10(rate) <= high:
            panel.parts.append(text(x(rate), BOTTOM + 18, f"{rate:g}"))
    for case, color in zip(cases, COLORS):
        points = sorted((row["learning_rate"], 100 * (row["accuracy"] or 0)) for row in searched if row["case"] == case)
        places = [(x(rate), panel.y(value)) for rate, value in points]
        panel.parts += [line(*a, *b, color, 1.5) for a, b in zip(places, places[1:])]
        panel.parts += [dot(*place, color) for place in places]
    return panel.parts


def test_panel(cases, tested):
    """The accuracy of each seed, and the mean as a bar."""
    values = [value for _, percents in tested for value in percents]
    panel = Panel(510, 880, *limits(values), "Test accuracy: each seed, and the mean")
    for place, (case, color) in enumerate(zip(cases, COLORS)):
        x = panel.left + (panel.right - panel.left) * (place + 1) / (len(cases) + 1)
        for percents in (found for name, found in tested if name == case):
            panel.parts += [dot(x, panel.y(value), color) for value in percents]
            mean = panel.y(statistics.mean(percents))
            panel.parts.append(line(x - 16, mean, x + 16, mean, color, 2))
    return panel.parts


def svg(cases, searched, tested):
    """The plot as text. `searched` are the runs of the search, `tested` (case, percentages of the seeds)."""
    legend = []
    for number, (case, color) in enumerate(zip(cases, COLORS)):
        x, y = 70 + 290 * (number % 3), BOTTOM + 46 + 20 * (number // 3)
        legend += [dot(x, y, color), text(x + 10, y + 4, case, "start")]
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        *search_panel(cases, searched), *(test_panel(cases, tested) if tested else []), *legend, "</svg>"]) + "\n"
