// The confusion matrix, the scores of the classes, and the most confident mistakes.

const kLevels = 16;

class ConfusionMatrix {
  constructor(matrix, names) {
    Object.assign(this, { matrix, names, n: matrix.length });
    this.sums = matrix.map((row) => row.reduce((sum, count) => sum + count, 0));
    this.worstShare = Math.max(1e-9, ...matrix.map((row, i) => Math.max(...row.map((count, j) => (i === j ? 0 : this.share(i, j))))));
    this.tip = html("div", { class: "tip", hidden: true });
    this.node = html("div", {
      class: "plot", role: "img", "aria-label": "Confusion matrix, true classes in rows, predicted ones in columns; the most frequent confusions are in the table next to it",
      onpointermove: (event) => this.point(event), onpointerdown: (event) => this.point(event), onpointerleave: () => this.hide(),
    });
    charts.push(this);
    new ResizeObserver(() => this.node.clientWidth !== this.lastWidth && this.draw()).observe(this.node);
  }

  name(index) { return this.names[index] || String(index); }
  share(row, column) { return this.sums[row] ? this.matrix[row][column] / this.sums[row] : 0; }

  draw() {
    this.lastWidth = this.node.clientWidth;
    const width = Math.max(220, Math.min(620, this.lastWidth));
    const longest = Math.min(14, Math.max(2, ...this.names.map((name) => name.length)));
    this.left = this.n <= 40 ? 12 + longest * 6 : 40;
    this.size = (width - this.left - 4) / this.n;
    const side = this.size * this.n;
    const flat = this.n > 40 || longest * 6.2 < this.size;
    const below = flat ? 24 : 12 + longest * 5.4;
    const canvas = svg("svg", { viewBox: `0 0 ${width} ${side + below + 4}`, height: side + below + 4, style: { width: `${width}px` }, "aria-hidden": "true" });
    canvas.append(svg("rect", { class: "matrix", x: this.left, y: 0, width: side, height: side, rx: 4 }));
    this.cells(canvas);
    this.labels(canvas, side, flat);
    this.over = svg("g", {});
    canvas.append(this.over);
    this.node.replaceChildren(canvas, this.tip);
  }

  // One path per shade. Mistakes are rare, so they have their own scale, on which small counts are visible.
  cells(canvas) {
    const paths = new Map();
    const gap = this.size > 6 ? 1 : 0;
    const texts = [];
    for (let row = 0; row < this.n; ++row) {
      for (let column = 0; column < this.n; ++column) {
        const share = this.share(row, column);
        if (share === 0) continue;
        const right = row === column;
        const level = Math.max(1, Math.round(kLevels * (right ? share : (share / this.worstShare) ** 0.7)));
        const key = `${right ? "right" : "wrong"} ${level}`;
        const [x, y] = [this.left + column * this.size, row * this.size];
        const side = (this.size - gap).toFixed(2);
        paths.set(key, `${paths.get(key) || ""}M${x.toFixed(2)} ${y.toFixed(2)}h${side}v${side}h-${side}z`);
        if (this.size >= 26) {
          texts.push(svg("text", { class: level > 9 ? "count strong" : "count", x: x + this.size / 2, y: y + this.size / 2 + 4 }, String(this.matrix[row][column])));
        }
      }
    }
    for (const [key, d] of paths) {
      const [kind, level] = key.split(" ");
      canvas.append(svg("path", { class: kind, opacity: (0.12 + (0.88 * level) / kLevels).toFixed(2), d }));
    }
    canvas.append(...texts);
  }

  labels(canvas, side, flat) {
    const every = [1, 2, 5, 10, 20].find((each) => each * this.size >= 22) || 50;
    const cut = (text) => (text.length > 14 ? `${text.slice(0, 13)}…` : text);
    for (let i = 0; i < this.n; i += every) {
      const label = this.n <= 40 ? cut(this.name(i)) : String(i);
      const middle = (i + 0.5) * this.size;
      const x = this.left + middle;
      canvas.append(
        svg("text", { x: this.left - 7, y: middle + 4, "text-anchor": "end" }, label),
        flat ? svg("text", { x, y: side + 17, "text-anchor": "middle" }, label)
          : svg("text", { x: x + 4, y: side + 12, "text-anchor": "end", transform: `rotate(-45 ${x + 4} ${side + 12})` }, label));
    }
  }

  point(event) {
    const box = this.node.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - this.left) / this.size);
    const row = Math.floor((event.clientY - box.top) / this.size);
    if (row < 0 || column < 0 || row >= this.n || column >= this.n) return this.hide();
    const [x, y] = [this.left + column * this.size, row * this.size];
    this.over.replaceChildren(svg("rect", { class: "cell", x, y, width: this.size, height: this.size }));
    this.tip.replaceChildren(
      html("p", {}, row === column ? `${this.name(row)}, correct` : `${this.name(row)}, predicted as ${this.name(column)}`),
      html("b", {}, integer(this.matrix[row][column])), ` of ${integer(this.sums[row])} · ${percent(this.share(row, column), 1)}`);
    this.tip.hidden = false;
    const room = this.node.clientWidth - this.tip.offsetWidth;
    this.tip.style.left = `${Math.max(0, Math.min(room, x + this.size + 10))}px`;
    this.tip.style.top = `${Math.max(0, y + this.size + 8)}px`;
  }

  hide() {
    this.tip.hidden = true;
    this.over.replaceChildren();
  }

  // Returns a table of the most frequent confusions.
  worst() {
    const pairs = [];
    this.matrix.forEach((row, i) => row.forEach((count, j) => i !== j && count > 0 && pairs.push([count, i, j])));
    pairs.sort((a, b) => b[0] - a[0]);
    return table(heads("True", "Predicted", "#Count", "#Share of class"), pairs.slice(0, 9).map(([count, i, j]) => html("tr", {},
      cell(this.name(i)), cell(this.name(j)), number(integer(count)), number(percent(this.share(i, j), 1)))), { label: "Most frequent confusions" });
  }
}

function mistakeImages(mistakes, nameOf) {
  return html("div", { class: "images" }, ...mistakes.map((mistake) => {
    const [label, predicted] = [nameOf(mistake.label), nameOf(mistake.predicted)];
    const image = mistake.png
      ? html("img", { src: `data:image/png;base64,${mistake.png}`, alt: `A sample of ${label}, predicted as ${predicted}`, title: mistake.where || null })
      : html("div", { class: "blank", title: mistake.where || null });
    return html("figure", {}, image,
      html("figcaption", {}, html("b", {}, label), " predicted as ", html("s", {}, predicted), html("span", { class: "muted" }, ` ${percent(mistake.probability, 1)}`)));
  }));
}

function classTable(scores, nameOf) {
  const share = (value) => number(percent(value, 1));
  return table(heads("Class", "#Precision", "#Recall", "#F1", "#Support"), scores.map((of, i) => html("tr", {},
    cell(nameOf(i)), share(of.precision), share(of.recall), share(of.f1), number(integer(of.support)))), { label: "Scores of each class" });
}

function confusionOf(run) {
  const { matrix, classes, mistakes, per_class: scores } = run.confusion;
  // -1 means that no class is predicted, because the outputs are not finite.
  const nameOf = (index) => (index === -1 ? "nothing" : known(index) ? classes[index] || String(index) : "–");
  const parts = [];
  if (matrix) {
    const plot = new ConfusionMatrix(matrix, matrix.map((row, i) => nameOf(i)));
    parts.push(html("article", { class: "card" }, html("header", {}, html("h3", {}, "Confusion matrix"),
      html("p", {}, "Rows are true classes, columns are predictions. Shades are shares of the row; mistakes have their own scale.")), plot.node,
      html("h3", { style: { "margin-top": "14px" } }, "Most frequent confusions"), plot.worst()));
  }
  if (mistakes.length) {
    parts.push(html("article", { class: "card" }, html("header", {}, html("h3", {}, "Most confident mistakes"),
      html("p", {}, "With the probability of the wrongly predicted class.")), mistakeImages(mistakes, nameOf)));
  }
  const rest = !scores.length ? null
    : html("article", { class: "card classes" }, html("header", {}, html("h3", {}, "Classes"),
      html("p", {}, "Precision is the share of the samples predicted as a class that belong to it. Recall is the share of the samples of a class that are predicted as it. F1 is their harmonic mean.")),
      classTable(scores, nameOf));
  return html("div", {}, html("div", { class: "pair" }, ...parts), rest);
}

function drawConfusion() {
  const evaluated = runs.map((run, index) => ({ run, index })).filter(({ run }) => run.confusion && (run.confusion.matrix || run.confusion.mistakes.length || run.confusion.per_class.length));
  if (!evaluated.length) return;
  const place = html("div", {});
  const show = (chosen) => {
    const at = charts.findIndex((chart) => chart instanceof ConfusionMatrix);
    if (at >= 0) charts.splice(at, 1);
    place.replaceChildren(confusionOf(runs[chosen]));
    charts.filter((chart) => chart instanceof ConfusionMatrix).forEach((chart) => chart.draw());
  };
  section("confusion", "Mistakes", "In the last evaluation.",
    evaluated.length > 1 ? html("p", { style: { "margin-bottom": "12px" } }, choice("Run", evaluated.map(({ run, index }) => [index, run.name]), evaluated[0].index, show)) : null, place);
  show(evaluated[0].index);
  window.triremeReport.charts.confusion = evaluated.map(({ run }) => ({ run: run.name, steps: run.confusion.classes, values: (run.confusion.matrix || []).flat() }));
}
