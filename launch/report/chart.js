// Helpers for elements, formatted numbers and scales, and the charts whose x axis is steps, epochs or time.
"use strict";

// The data of the drawn charts and the errors, for tests and debugging.
window.triremeReport = { charts: {}, errors: [], ready: false };
window.addEventListener("error", (event) => window.triremeReport.errors.push(String(event.message)));

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, of] of Object.entries(value)) node.style.setProperty(key, of);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}
const html = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
const byId = (id) => document.getElementById(id);
const color = (index) => ({ "--color": `var(--c${index % 8})` });
const known = (value) => Number.isFinite(value);
// The text of a value that is not a finite number. In the data, as in all JSON of a run, "NaN", "Infinity" and "-Infinity" are
// strings; null is a number that was not recorded.
const undrawn = (value) => (typeof value === "string" ? value.replace("-", "−").replace("Infinity", "∞") : "–");

// --- Numbers ---

function short(value, digits = 4) {
  if (!known(value)) return undrawn(value);
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e15)) return value.toExponential(Math.min(2, digits - 1)).replace("e+", "e");
  for (const [limit, unit] of [[1e12, " T"], [1e9, " G"], [1e6, " M"], [1e4, " k"]]) {
    if (size >= limit) return short(value / (limit === 1e4 ? 1e3 : limit), digits) + unit;
  }
  return String(Number(value.toPrecision(digits)));
}
const integer = (value) => (known(value) ? Math.round(value).toLocaleString("en").replaceAll(",", "\u202f") : undrawn(value));
const percent = (value, digits = 2) => (known(value) ? `${(100 * value).toFixed(digits)}%` : undrawn(value));
const milliseconds = (value) => (known(value) ? `${short(value, 3)} ms` : undrawn(value));
function duration(seconds) {
  if (!known(seconds)) return undrawn(seconds);
  if (seconds < 60) return `${seconds < 10 ? short(seconds, 2) : Math.round(seconds)} s`;
  const pad = (value) => String(value).padStart(2, "0");
  const all = Math.round(seconds);
  const [hours, minutes] = [Math.floor(all / 3600), Math.floor(all / 60) % 60];
  return hours ? `${hours} h ${pad(minutes)} m` : `${minutes} m ${pad(all % 60)} s`;
}
function bytes(value) {
  if (!known(value)) return undrawn(value);
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; value >= 1024 && unit + 1 < units.length; ++unit) value /= 1024;
  return `${short(value, 3)} ${units[unit]}`;
}

// --- Scales ---

const kDurations = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];

function tickStep(span, count, isTime) {
  const rough = span / Math.max(1, count);
  if (isTime && rough > 1) return kDurations.find((each) => each >= rough) || Math.ceil(rough / 86400) * 86400;
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * [1, 2, 5, 10].find((each) => each * power >= rough * 0.999);
}

function ticks(low, high, count, isTime = false) {
  if (!(high > low)) return [low];
  const step = tickStep(high - low, count, isTime);
  const all = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i) all.push(i * step);
  return all;
}

function logTicks(low, high) {
  const [from, to] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const steps = to - from > 6 ? [1] : to - from > 2 ? [1, 3] : [1, 2, 3, 5];
  const all = [];
  for (let power = from; power <= to; ++power) for (const each of steps) all.push(each * 10 ** power);
  const within = all.filter((each) => each >= low * 0.999 && each <= high * 1.001);
  return within.length > 1 ? within : ticks(low, high, 4);
}

// Returns a function from values to pixels.
function scale(low, high, from, to, log) {
  const of = log ? Math.log10 : (value) => value;
  const [a, b] = [of(low), of(high)];
  return (value) => from + ((of(value) - a) / (b - a || 1)) * (to - from);
}

// Returns the index of the value nearest to x; values are ascending.
function nearest(values, x) {
  let [low, high] = [0, values.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (values[middle] < x) low = middle;
    else high = middle;
  }
  return Math.abs(values[low] - x) <= Math.abs(values[high] - x) ? low : high;
}

function interpolate(xs, ys, x) {
  if (!xs.length || x <= xs[0]) return ys[0] || 0;
  let [low, high] = [0, xs.length - 1];
  if (x >= xs[high]) return ys[high];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] <= x) low = middle;
    else high = middle;
  }
  return ys[low] + ((ys[high] - ys[low]) * (x - xs[low])) / (xs[high] - xs[low]);
}

// Exponential moving average with bias correction.
function smoothed(values, weight) {
  let [sum, norm] = [0, 0];
  return values.map((value) => {
    if (!known(value)) return null;
    sum = weight * sum + (1 - weight) * value;
    norm = weight * norm + (1 - weight);
    return sum / norm;
  });
}

const kAxes = {
  step: { title: "step", of: (run, step) => step, text: (x) => `step ${integer(x)}`, tick: (x) => short(x, 3) },
  epoch: {
    title: "epoch",
    of: (run, step) => interpolate(run.epochs.steps, run.epochs.values, step),
    text: (x) => `epoch ${x.toFixed(2)}`,
    tick: (x) => short(x, 3),
  },
  time: {
    title: "time",
    of: (run, step) => interpolate(run.clock.steps, run.clock.seconds, step),
    text: duration,
    tick: duration,
  },
};

// The state that all charts share.
const view = { axis: "step", smoothing: 0, log: false, hidden: new Set() };
const charts = [];
const drawAll = () => charts.forEach((chart) => chart.draw());

// --- Axes, a crosshair and a tooltip ---

class Plot {
  // `label` is the description for screen readers.
  constructor(label, height) {
    this.height = height;
    this.margin = { left: 46, right: 10, top: 8, bottom: 24 };
    this.tip = html("div", { class: "tip", hidden: true });
    this.node = html("div", {
      class: "plot", tabindex: 0, role: "img", "aria-label": label,
      onpointermove: (event) => this.point(event), onpointerdown: (event) => this.point(event),
      onpointerleave: () => this.showAt(null), onblur: () => this.showAt(null),
      onkeydown: (event) => this.key(event),
    });
    charts.push(this);
    this.lastWidth = 0;
    new ResizeObserver(() => {
      if (this.node.clientWidth !== this.lastWidth) this.draw();
    }).observe(this.node);
  }

  // Draws axes for these ranges. Returns the SVG element to draw into.
  open(xs, ys, format, log) {
    this.lastWidth = this.node.clientWidth;
    this.width = Math.max(220, this.lastWidth);
    const { left, right, top, bottom } = this.margin;
    const axis = kAxes[view.axis];
    this.range = xs;
    this.x = scale(xs[0], xs[1], left, this.width - right);
    this.y = scale(ys[0], ys[1], this.height - bottom, top, log);
    const canvas = svg("svg", { viewBox: `0 0 ${this.width} ${this.height}`, height: this.height, "aria-hidden": "true" });
    const base = this.height - bottom;
    for (const value of log ? logTicks(ys[0], ys[1]) : ticks(ys[0], ys[1], Math.max(2, this.height / 50))) {
      const at = this.y(value);
      canvas.append(
        svg("line", { class: "rule", x1: left, x2: this.width - right, y1: at, y2: at }),
        svg("text", { x: left - 8, y: at + 4, "text-anchor": "end" }, format(value)));
    }
    for (const value of ticks(xs[0], xs[1], this.width / 90, view.axis === "time")) {
      canvas.append(svg("text", { x: this.x(value), y: base + 17, "text-anchor": "middle" }, axis.tick(value)));
    }
    canvas.append(svg("line", { class: "rule base", x1: left, x2: this.width - right, y1: base, y2: base }));
    this.over = svg("g", {});
    this.node.replaceChildren(canvas, this.tip);
    return canvas;
  }

  point(event) {
    const box = this.node.getBoundingClientRect();
    const { left, right } = this.margin;
    const part = (event.clientX - box.left - left) / (this.width - left - right);
    this.showAt(this.range[0] + Math.min(1, Math.max(0, part)) * (this.range[1] - this.range[0]));
  }

  key(event) {
    const way = { ArrowLeft: -1, ArrowRight: 1, Home: -1e9, End: 1e9 }[event.key];
    if (!way || !this.range) return;
    event.preventDefault();
    const [low, high] = this.range;
    const from = known(this.shown) ? this.shown : low;
    this.showAt(Math.min(high, Math.max(low, from + (way * (high - low)) / 50)));
  }

  // Shows the tooltip at x; hides it if x is null.
  showAt(x) {
    this.shown = x;
    this.over.replaceChildren();
    const rows = known(x) && this.range ? this.rowsAt(x) : [];
    this.tip.hidden = !rows.length;
    if (!rows.length) return;
    const at = this.x(x);
    this.over.append(svg("line", { class: "cross", x1: at, x2: at, y1: this.margin.top, y2: this.height - this.margin.bottom }));
    for (const row of rows) {
      if (known(row.x)) this.over.append(svg("circle", { class: "dot", cx: this.x(row.x), cy: this.y(row.y), r: 4, style: row.color }));
    }
    this.tip.replaceChildren(
      html("p", {}, this.title(x)),
      html("table", {}, ...rows.map((row) =>
        html("tr", {},
          html("td", {}, html("span", { class: "chip", style: row.color })),
          html("td", {}, html("div", { class: "name" }, row.name)),
          html("td", { class: "number" }, html("b", {}, row.text)),
          row.more ? html("td", { class: "number muted" }, row.more) : null))));
    const room = this.node.clientWidth - this.tip.offsetWidth;
    const left = at + 14 > room ? at - 14 - this.tip.offsetWidth : at + 14;
    this.tip.style.left = `${Math.max(0, Math.min(room, left))}px`;
  }

  title(x) { return kAxes[view.axis].text(x); }
}

function pathOf(xs, ys, x, y) {
  let path = "";
  let pen = "M";
  for (let i = 0; i < xs.length; ++i) {
    if (!known(ys[i])) {
      pen = "M";
      continue;
    }
    path += `${pen}${x(xs[i]).toFixed(1)} ${y(ys[i]).toFixed(1)}`;
    pen = "L";
  }
  return path;
}

function extent(lists) {
  let [low, high] = [Infinity, -Infinity];
  for (const list of lists) {
    for (const value of list) {
      if (!known(value)) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  return low <= high ? [low, high] : null;
}

// --- A line chart of one quantity of all runs ---

class LineChart extends Plot {
  // `of(run)` returns {steps, values[, mean_steps, means]}, or null if the run has no such data.
  constructor(id, runs, { title, unit = "", of, format = short, smooth = false, dots = false, zero = false, canLog = false, height = 230, signs }) {
    super(`${title} of each run over time; the last values are in the table below`, height);
    Object.assign(this, { id, runs, of, format, smooth, dots, zero, canLog, signs });
    this.card = html("article", { class: "card chart", id: `chart-${id}` },
      html("header", {}, html("h3", {}, title), html("span", {}, unit)), this.node, this.values());
  }

  // The values as a table, for users who cannot see the chart.
  values() {
    const rows = this.runs.map((run, index) => [run, index, this.of(run)]).filter(([, , data]) => data && data.values.length);
    return html("details", {}, html("summary", {}, "Values"),
      html("div", { class: "scroll" }, html("table", {},
        html("tr", {}, ...["Run", "First", "Min", "Max", "Last"].map((name, i) => html("th", { class: i ? "number" : null, scope: "col" }, name))),
        ...rows.map(([run, index, data]) => {
          const recorded = data.values.filter((value) => value !== null);
          const [min, max] = extent([recorded]) || [null, null];
          return html("tr", {}, html("td", { class: "named" }, html("span", { class: "chip", style: color(index) }), run.name),
            ...[recorded[0], min, max, recorded.at(-1)].map((value) => html("td", { class: "number" }, this.format(value))));
        }))));
  }

  series() {
    const all = [];
    this.runs.forEach((run, index) => {
      const data = this.of(run);
      if (!data || !data.values.some(known) || view.hidden.has(index)) return;
      const at = (steps) => steps.map((step) => kAxes[view.axis].of(run, step));
      const one = { run, index, steps: data.steps, xs: at(data.steps), ys: data.values };
      if (this.smooth && view.smoothing > 0) {
        one.smoothXs = data.means ? at(data.mean_steps) : one.xs;
        // The weight is per record, and a mean represents many records.
        one.smoothYs = smoothed(data.means || data.values, view.smoothing ** (data.means ? data.count / data.means.length : 1));
      }
      all.push(one);
    });
    return all;
  }

  draw() {
    this.drawn = this.series();
    const xs = [0, Math.max(...this.drawn.map((one) => kAxes[view.axis].of(one.run, one.run.step)), 0) || 1];
    const log = this.canLog && view.log;
    const values = this.drawn.map((one) => (log ? one.ys.filter((y) => y > 0) : one.ys));
    const ys = extent(values) || [0, 1];
    if (this.zero) ys[0] = Math.min(0, ys[0]);
    if (!log) {
      const room = (ys[1] - ys[0] || Math.abs(ys[1]) || 1) * 0.05;
      if (!this.zero) ys[0] -= room;
      ys[1] += room;
    }
    const canvas = this.open(xs, ys, this.format, log);
    const fit = (list) => (log ? list.map((y) => (y > 0 ? y : null)) : list);
    for (const one of this.drawn) {
      const style = color(one.index);
      canvas.append(svg("path", { class: one.smoothYs ? "curve raw" : "curve", style, d: pathOf(one.xs, fit(one.ys), this.x, this.y) }));
      if (this.dots && one.xs.length <= 60) {
        one.xs.forEach((x, i) => known(one.ys[i]) && canvas.append(svg("circle", { class: "dot", style, cx: this.x(x), cy: this.y(one.ys[i]), r: 2.5 })));
      }
    }
    for (const one of this.drawn) {
      if (one.smoothYs) canvas.append(svg("path", { class: "curve", style: color(one.index), d: pathOf(one.smoothXs, fit(one.smoothYs), this.x, this.y) }));
    }
    for (const sign of this.signs ? this.drawn.flatMap(this.signs) : []) {
      const at = this.x(sign.x);
      const base = this.height - this.margin.bottom;
      canvas.append(svg("path", { class: "sign", d: `M${at - 5} ${base}h10l-5 -8z` }, svg("title", {}, sign.text)));
    }
    canvas.append(this.over);
    if (known(this.shown)) this.showAt(this.shown);
    window.triremeReport.charts[this.id] = this.drawn.map(({ run, steps, ys: drawnValues }) => ({ run: run.name, steps, values: drawnValues }));
  }

  rowsAt(x) {
    const rows = [];
    for (const one of this.drawn) {
      if (x > one.xs.at(-1) + (this.range[1] - this.range[0]) * 0.02) continue;  // the run ended before x
      const raw = nearest(one.xs, x);
      const smooth = one.smoothYs && nearest(one.smoothXs, x);
      const value = one.smoothYs ? one.smoothYs[smooth] : one.ys[raw];
      rows.push({
        name: one.run.name, color: color(one.index), text: this.format(value),
        more: one.smoothYs ? this.format(one.ys[raw]) : null,
        x: known(value) ? (one.smoothYs ? one.smoothXs[smooth] : one.xs[raw]) : null, y: value,
      });
    }
    return rows;
  }
}

// --- An area chart of the parts of the step time of one run ---

class AreaChart extends Plot {
  constructor(id, run, index, parts) {
    super(`Milliseconds per step by part during ${run.name}; the means are in the table above`, 170);
    Object.assign(this, { id, run, index, parts });
    this.card = html("article", { class: "card chart", id: `chart-${id}` },
      html("header", {}, html("span", { class: "chip", style: color(index) }), html("h3", {}, run.name), html("span", {}, "ms per step")), this.node);
  }

  draw() {
    const { steps, ms } = this.run.times;
    this.xs = steps.map((step) => kAxes[view.axis].of(this.run, step));
    const sums = ms.map((parts) => parts.reduce((sum, value) => sum + (value || 0), 0));
    // Cuts off outliers, so that one slow moment does not flatten the rest.
    const sorted = [...sums].sort((a, b) => a - b);
    const max = Math.min(sorted.at(-1), 2.5 * sorted[Math.floor(sorted.length * 0.9)]) * 1.05 || 1;
    const canvas = this.open([this.xs[0], Math.max(this.xs.at(-1), this.xs[0] + 1e-9)], [0, max], (value) => short(value, 3));
    let below = ms.map(() => 0);
    this.parts.forEach((part) => {
      const above = ms.map((values, i) => Math.min(max, below[i] + (values[part.index] || 0)));
      let path = pathOf(this.xs, above, this.x, this.y);
      for (let i = this.xs.length - 1; i >= 0; --i) path += `L${this.x(this.xs[i]).toFixed(1)} ${this.y(below[i]).toFixed(1)}`;
      canvas.append(svg("path", { class: "area", style: part.color, d: `${path}Z` }));
      below = above;
    });
    canvas.append(this.over);
    if (known(this.shown)) this.showAt(this.shown);
    window.triremeReport.charts[this.id] = [{ run: this.run.name, steps, values: sums }];
  }

  rowsAt(x) {
    const values = this.run.times.ms[nearest(this.xs, x)];
    return this.parts.map((part) => ({ name: part.name, color: part.color, text: milliseconds(values[part.index]) }));
  }
}
