// Draws the sections of the page from the data embedded in it; see report_data.cc.

const report = JSON.parse(byId("data").textContent);
const runs = report.runs;
const chip = (index) => html("span", { class: "chip", style: color(index) });

function section(id, title, text, ...content) {
  byId(id).append(html("header", {}, html("h2", {}, title), text ? html("p", {}, text) : null), ...content.filter(Boolean));
}

function table(heads, rows, attributes = {}) {
  return html("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": attributes.label || "Table" },
    html("table", { class: attributes.class },
      html("thead", {}, html("tr", {}, ...heads.map((head) => html("th", { scope: "col", class: head.number ? "number" : null }, head.text)))),
      html("tbody", {}, ...rows)));
}
const heads = (...texts) => texts.map((text) => (text.startsWith("#") ? { text: text.slice(1), number: true } : { text }));
const cell = (content) => html("td", {}, content);
const number = (text) => html("td", { class: "number" }, text);
const runCell = (index) => html("td", { class: "named" }, chip(index), runs[index].name);

// A row of buttons, one of which is selected.
function choice(label, names, chosen, choose) {
  const buttons = names.map(([value, text]) => html("button", {
    type: "button", "aria-pressed": String(value === chosen),
    onclick: (event) => {
      buttons.forEach((button) => button.setAttribute("aria-pressed", String(button === event.currentTarget)));
      choose(value);
    },
  }, text));
  return html("div", { class: "choice", role: "group", "aria-label": label }, ...buttons);
}

// --- Metrics of evaluations ---

const metricText = (metric, value) => (metric.ratio ? percent(value) : short(value));
const titled = (metric) => metric.title[0].toUpperCase() + metric.title.slice(1);
// The metrics that some run has.
const metrics = report.metrics.filter(({ name }) => runs.some((run) => run.evaluations && run.evaluations[name]));

// --- Runs ---

function stat(name, text, small, hero) {
  return html("div", { class: hero ? "hero" : null }, html("dt", {}, name), html("dd", {}, text, small ? html("small", {}, ` ${small}`) : null));
}

function heroStat(run) {
  const evaluated = run.evaluations;
  if (evaluated && !evaluated.best) return stat("Evaluation loss", short(evaluated.last.loss), "at the end; no evaluation had a finite loss", true);
  if (evaluated && known(evaluated.best.accuracy)) {
    const { best, last } = evaluated;
    const when = best.step === last.step ? "at the end" : `best, at step ${integer(best.step)}; ${percent(last.accuracy)} at the end`;
    return stat("Accuracy", percent(best.accuracy), when, true);
  }
  if (evaluated) return stat("Evaluation loss", short(evaluated.best.loss), `best, at step ${integer(evaluated.best.step)}`, true);
  return stat("Training loss", short(run.last_loss), "no evaluation yet", true);
}

// The brief metrics other than accuracy and loss, which are shown separately.
function briefStats(last) {
  return metrics.filter(({ name, brief }) => brief && name !== "loss" && name !== "accuracy" && last[name] !== null)
    .map((metric) => stat(titled(metric), metricText(metric, last[metric.name])));
}

function runCard(run, index) {
  const end = run.summary;
  const planned = run.planned_steps;
  const loss = end ? end.train_loss : run.last_loss;
  const stats = [heroStat(run)];
  if (run.evaluations) stats.push(stat("Eval loss", short(run.evaluations.last.loss)), ...briefStats(run.evaluations.last));
  stats.push(
    stat("Train loss", short(loss)),
    run.tokens_per_second === null ? stat("Samples/s", short(run.samples_per_second, 3)) : stat("Tokens/s", short(run.tokens_per_second, 3)),
    ...(run.utilization === null ? [] : [stat("FLOPs utilization", percent(run.utilization, 1))]),
    ...(run.padding === null ? [] : [stat("Padding", percent(run.padding, 1), "of the tokens")]),
    stat("Time", duration(end ? end.wall_seconds : run.seconds)),
    stat("Ranks", integer(run.ranks)),
    stat("Steps", integer(run.step), planned > run.step ? `of ${integer(planned)}` : ""));
  const model = [run.model, run.parameters ? `${short(run.parameters, 3)} parameters` : "", run.precision,
    run.global_batch ? `batch ${integer(run.global_batch)}` : ""].filter(Boolean).join(" · ");
  return html("article", { class: "card run", style: color(index) },
    html("header", {}, html("h2", {}, run.name), html("span", { class: `status ${run.status}` }, run.status)),
    html("p", { class: "model" }, model),
    html("dl", { class: "stats" }, ...stats),
    run.status !== "done" && planned ? html("div", { class: "progress", role: "img", "aria-label": `${integer(run.step)} of ${integer(planned)} steps` },
      html("i", { style: { width: `${Math.min(100, (100 * run.step) / planned)}%` } })) : null,
    end && end.reason ? html("p", { class: "notice" }, `Stopped early: ${end.reason}. The result is its best checkpoint.`) : null,
    run.status === "failed" ? html("p", { class: "notice bad" }, run.ending || "The run ended with an error.") : null,
    run.status === "dead" ? html("p", { class: "notice bad" }, "The run ended without a message: it was killed, or its host was lost.") : null,
    ...run.problems.map((problem) => html("p", { class: "notice warn" }, problem)));
}

function drawRuns() {
  byId("about").textContent = `${runs.length === 1 ? runs[0].path : `${runs.length} runs`} · written ${report.written}`;
  byId("runs").append(...runs.map(runCard));
  byId("footer").textContent = `Written by trireme ${report.version}. This file is self-contained.`;
}

// --- Controls ---

function drawBar() {
  const maxSteps = Math.max(0, ...runs.map((run) => run.loss.steps.length));
  view.smoothing = maxSteps > 200 ? 0.9 : maxSteps > 40 ? 0.6 : 0;
  const legend = html("div", { class: "legend", role: "group", "aria-label": "Runs to draw" },
    ...runs.map((run, index) => html("button", {
      type: "button", "aria-pressed": "true", title: run.path,
      onclick: (event) => {
        const hides = !view.hidden.delete(index);
        if (hides) view.hidden.add(index);
        event.currentTarget.setAttribute("aria-pressed", String(!hides));
        drawAll();
      },
    }, chip(index), html("span", {}, run.name))));
  const output = html("output", {}, view.smoothing.toFixed(2));
  byId("bar").append(
    legend,
    choice("Horizontal axis", [["step", "Step"], ["epoch", "Epoch"], ["time", "Time"]], view.axis, (axis) => {
      view.axis = axis;
      charts.forEach((chart) => (chart.shown = null));
      drawAll();
    }),
    html("label", {}, "Smoothing", html("input", {
      type: "range", min: 0, max: 0.995, step: 0.005, value: view.smoothing,
      oninput: (event) => {
        view.smoothing = Number(event.currentTarget.value);
        output.textContent = view.smoothing.toFixed(2);
        drawAll();
      },
    }), output),
    html("label", {}, html("input", {
      type: "checkbox",
      onchange: (event) => {
        view.log = event.currentTarget.checked;
        drawAll();
      },
    }), "Log loss"));
}

// --- Curves ---

// Markers of skipped steps and loss spikes on the axis of the loss.
function lossSigns({ run }) {
  return run.events.filter((event) => known(event.step) && (event.kind === "not_finite" || event.kind === "loss_spike"))
    .map((event) => ({ x: kAxes[view.axis].of(run, event.step), text: `${run.name}, step ${event.step}: ${event.text}` }));
}

function drawCurves() {
  const kinds = [
    ["loss", { title: "Training loss", of: (run) => run.loss, smooth: true, canLog: true, height: 300, signs: lossSigns }],
    ["eval_loss", { title: "Evaluation loss", of: (run) => run.evaluations && run.evaluations.loss, dots: true, canLog: true }],
    ...metrics.filter(({ name, brief }) => brief && name !== "loss").map((metric) => [metric.name, {
      title: titled(metric), of: (run) => run.evaluations && run.evaluations[metric.name], dots: true,
      ...(metric.ratio ? { format: (value) => percent(value, 1) } : {}),
    }]),
    ["learning_rate", { title: "Learning rate", of: (run) => run.learning_rate, zero: true }],
    ["throughput", { title: "Throughput", unit: "samples/s", of: (run) => run.throughput, smooth: true, zero: true, format: (value) => short(value, 3) }],
    ["utilizations", { title: "Model FLOPs utilization", of: (run) => run.utilizations, smooth: true, zero: true, format: (value) => percent(value, 1) }],
    ["paddings", { title: "Padding", unit: "of the tokens", of: (run) => run.paddings, smooth: true, zero: true, format: (value) => percent(value, 1) }],
    ["gpu_load", { title: "GPU load", unit: "%, rank 0", of: (run) => run.gpu_load, smooth: true, zero: true }],
  ];
  const shown = kinds.filter(([, { of }]) => runs.some((run) => (of(run) || { values: [] }).values.some(known)));
  if (!shown.length) return;
  const cards = shown.map(([id, options]) => new LineChart(id, runs, options).card);
  cards[0].classList.add("full");
  byId("curves").append(html("div", { class: "grid" }, ...cards));
}

// --- Step times ---

function drawTimes() {
  const timed = runs.map((run, index) => ({ run, index })).filter(({ run }) => run.times);
  if (!timed.length) return;
  const names = timed[0].run.times.parts;
  const parts = names.map((name, index) => ({ name: index === names.length - 1 ? "rest" : name, index, color: { "--color": `var(--p${index % 7})` } }))
    .filter((part) => timed.some(({ run }) => run.times.mean[part.index] > 0));
  if (timed.some(({ run }) => run.times.parts.at(-1) === "computation")) parts.at(-1).name = "computation and rest";
  const longest = Math.max(...timed.map(({ run }) => run.times.mean.reduce((sum, value) => sum + value, 0)));
  const bars = timed.map(({ run, index }) => {
    const total = run.times.mean.reduce((sum, value) => sum + value, 0);
    const pieces = parts.map((part) => {
      const share = run.times.mean[part.index] / (total || 1);
      const of = (100 * run.times.mean[part.index]) / (longest || 1);
      return html("i", { style: { ...part.color, width: `${of}%` }, title: `${part.name}: ${milliseconds(run.times.mean[part.index])}, ${percent(share, 1)}` },
        of > 7 ? percent(share, 0) : "");
    });
    return html("div", { class: "row" }, html("div", { class: "who" }, chip(index), html("span", {}, run.name)),
      html("div", { class: "stack", role: "img", "aria-label": `A step of ${run.name} takes ${milliseconds(total)}; the parts are in the table below` }, ...pieces),
      html("div", { class: "number" }, milliseconds(total)));
  });
  const rows = timed.map(({ run, index }) => html("tr", {}, runCell(index), ...parts.map((part) => number(milliseconds(run.times.mean[part.index])))));
  section("times", "Step time by part", "Means over the run, without its first step. Exposed communication does not overlap with computation.",
    html("div", { class: "card" },
      html("div", { class: "bars" }, ...bars),
      html("ul", { class: "parts" }, ...parts.map((part) => html("li", {}, html("span", { class: "chip", style: part.color }), part.name))),
      html("details", { class: "values" }, html("summary", {}, "Values"),
        table(heads("Run", ...parts.map((part) => `#${part.name}`)), rows, { label: "Milliseconds per step by part" }))),
    html("div", { class: "grid areas" }, ...timed.filter(({ run }) => run.times.steps.length > 1)
      .map(({ run, index }) => new AreaChart(`times-${index}`, run, index, parts).card)));
  window.triremeReport.charts.times = timed.map(({ run }) => ({ run: run.name, steps: run.times.parts, values: run.times.mean }));
}

// --- Ranks ---

function drawLag() {
  const several = runs.map((run, index) => ({ run, index })).filter(({ run }) => run.lag && run.lag.mean.length > 1);
  if (!several.length) return;
  const cards = several.map(({ run, index }) => {
    const { mean, ms, steps } = run.lag;
    const longest = Math.max(1e-9, ...mean);
    const worst = Math.max(1e-9, ...ms.flat().filter(known));
    const rows = mean.map((value, rank) => html("div", { class: "row" },
      html("span", { class: "muted" }, `rank ${rank}`),
      html("div", { class: "meter" }, html("i", { style: { width: `${(100 * value) / longest}%` } })),
      html("span", { class: "number" }, milliseconds(value)),
      svg("svg", { viewBox: `0 0 ${steps.length} 1`, preserveAspectRatio: "none", "aria-hidden": "true" },
        ...ms[rank].map((cellMs, i) => svg("rect", { x: i, y: 0, width: 1.02, height: 1, opacity: Math.sqrt((cellMs || 0) / worst).toFixed(2) },
          svg("title", {}, `rank ${rank}, up to step ${steps[i]}: ${milliseconds(cellMs)}`))))));
    return html("article", { class: "card", style: color(index) },
      html("header", { class: "who" }, html("h3", {}, chip(index), " ", run.name)),
      html("div", { class: "ranks", tabindex: 0, role: "region", "aria-label": `Lag of the ranks of ${run.name}` }, ...rows));
  });
  section("lag", "Ranks that the others waited for", "Milliseconds per step that the other ranks waited for each rank. On the right: over time; a stronger color means a longer wait.",
    html("div", { class: "grid" }, ...cards));
  window.triremeReport.charts.lag = several.map(({ run }) => ({ run: run.name, steps: run.lag.steps, values: run.lag.mean }));
}

// --- Pipeline stages ---

function drawStages() {
  const staged = runs.map((run, index) => ({ run, index })).filter(({ run }) => run.stages);
  if (!staged.length) return;
  const cards = staged.map(({ run, index }) => html("article", { class: "card", style: color(index) },
    html("header", { class: "who" }, html("h3", {}, chip(index), " ", run.name)),
    html("div", { class: "ranks", role: "region", "aria-label": `Utilization of the stages of ${run.name}` }, ...run.stages.map((part, stage) =>
      html("div", { class: "row" }, html("span", { class: "muted" }, `stage ${stage}`),
        html("div", { class: "meter" }, html("i", { style: { width: `${100 * (part || 0)}%` } })),
        html("span", { class: "number" }, percent(part, 1)))))));
  section("stages", "Utilization of the pipeline stages", "The part of the time in which each stage does not wait for others, as a mean over its replicas and the run.",
    html("div", { class: "grid" }, ...cards));
  window.triremeReport.charts.stages = staged.map(({ run }) => ({ run: run.name, values: run.stages }));
}

// --- Evaluations ---

function drawEvaluations() {
  const rows = [];
  runs.forEach((run, index) => {
    if (!run.evaluations) return;
    const { best, last } = run.evaluations;
    const row = (point, which) => html("tr", {}, runCell(index), cell(which), number(integer(point.step)), number(integer(point.epoch)),
      ...metrics.map((metric) => number(metricText(metric, point[metric.name]))), number(integer(point.samples)), number(duration(point.took)));
    if (best && best.step !== last.step) rows.push(row(best, "best"));
    rows.push(row(last, best && best.step === last.step ? "last, best" : "last"));
  });
  if (!rows.length) return;
  section("evaluations", "Evaluations", "",
    html("div", { class: "card" }, table(heads("Run", "", "#Step", "#Epochs", ...metrics.map((metric) => `#${titled(metric)}`), "#Samples", "#Time"), rows, { label: "Best and last evaluation of each run" })));
}

// --- Configuration and environment ---

// Highlights the keys, strings and values of protobuf text format.
function colored(text) {
  const out = html("pre", { tabindex: 0 });
  const pattern = /("(?:[^"\\\n]|\\.)*")|([A-Za-z_]\w*)(?=\s*[:{])|(-?\b\d[\w.+-]*\b|\b[A-Z][A-Z0-9_]+\b|\btrue\b|\bfalse\b)/g;
  let at = 0;
  for (const match of text.matchAll(pattern)) {
    out.append(text.slice(at, match.index), html("span", { class: match[1] ? "text" : match[2] ? "key" : "value" }, match[0]));
    at = match.index + match[0].length;
  }
  out.append(text.slice(at));
  return out;
}

function drawConfig() {
  const several = runs.length > 1;
  const rows = report.differences.map(({ path, values }) => html("tr", {}, html("td", {}, html("code", {}, path)),
    ...values.map((value) => html("td", {}, value === "" ? html("span", { class: "muted" }, "unset") : html("code", {}, value)))));
  const same = html("p", { class: "muted" }, "The configurations are the same, except for the folders.");
  const texts = runs.map((run, index) => (run.config === "" ? null
    : html("details", { open: !several }, html("summary", {}, several ? chip(index) : null, several ? ` ${run.name}` : "As resolved"), colored(run.config))));
  section("config", several ? "Differences between the configurations" : "Configuration", "",
    html("div", { class: "card" },
      several ? (rows.length ? table([{ text: "Field" }, ...runs.map((run) => ({ text: run.name }))], rows, { class: "differs", label: "Fields that differ" }) : same) : null,
      ...texts));
}

function environmentRows(environment, end) {
  const hosts = Array.isArray(environment.hosts) ? environment.hosts : [];
  const listed = (of) => [...new Set(hosts.map(of).filter(Boolean))].join("; ");
  const versions = Object.entries(environment.libraries || {}).map(([name, version]) => `${name} ${version}`);
  if (environment.mpi) versions.push(String(environment.mpi));
  return [
    ["Started", environment.started],
    ["Trireme", environment.version],
    ["Command", environment.command],
    ["Hosts", hosts.map((host) => `${host.name} (rank${(host.ranks || []).length === 1 ? "" : "s"} ${rangesOf(host.ranks || [])})`).join(", ")],
    ["Processor", listed((host) => host.cpu)],
    ["Cores per rank (max)", listed((host) => String(host.cores || ""))],
    ["Memory", listed((host) => (host.memory_bytes ? bytes(host.memory_bytes) : ""))],
    ["Peak memory of a rank", end && end.peak_memory_bytes ? bytes(end.peak_memory_bytes) : ""],
    ["GPUs", listed((host) => [...new Set(host.gpus || [])].join(", "))],
    ["Libraries", versions.join(", ")],
  ];
}

function rangesOf(ranks) {
  const out = [];
  for (const rank of ranks) {
    if (out.length && out.at(-1)[1] === rank - 1) out.at(-1)[1] = rank;
    else out.push([rank, rank]);
  }
  return out.map(([low, high]) => (low === high ? low : `${low}–${high}`)).join(", ");
}

function drawEnvironment() {
  const all = runs.map((run) => (run.environment ? environmentRows(run.environment, run.summary) : null));
  const first = all.find(Boolean);
  if (!first) return;
  const rows = first.map(([name], i) => [name, all.map((each) => (each && each[i][1]) || "")])
    .filter(([, values]) => values.some(Boolean))
    .map(([name, values]) => {
      const same = values.every((value) => value === values[0]);
      const code = name === "Command" ? (value) => html("code", {}, value) : (value) => value;
      return html("tr", {}, html("th", { scope: "row" }, name),
        ...(same ? [html("td", { colspan: runs.length }, code(values[0]))] : values.map((value) => html("td", {}, code(value)))));
    });
  section("environment", "Environment", "",
    html("div", { class: "card" }, table([{ text: "" }, ...runs.map((run) => ({ text: run.name }))], rows, { class: "differs", label: "Environment of each run" })));
}

// --- Events ---

const kKinds = { start: "start", checkpoint: "checkpoint", not_finite: "not finite", loss_spike: "loss spike", end: "end", failed: "failed" };

function drawEvents() {
  const all = [];
  runs.forEach((run, index) => {
    for (const event of run.events) all.push({ ...event, index });
    if (run.status === "failed" && run.ending) all.push({ kind: "failed", step: run.step, text: run.ending, index });
  });
  if (!all.length) return;
  const hidden = new Set();
  const rows = all.map((event) => html("tr", {}, runs.length > 1 ? runCell(event.index) : null, number(known(event.step) ? integer(event.step) : ""),
    html("td", { class: `kind ${/^\w+$/.test(event.kind) ? event.kind : ""}` }, kKinds[event.kind] || event.kind), cell(event.text)));
  const kinds = [...new Set(all.map((event) => event.kind))];
  const filters = kinds.map((kind) => html("button", {
    type: "button", "aria-pressed": "true",
    onclick: (event) => {
      const hides = !hidden.delete(kind);
      if (hides) hidden.add(kind);
      event.currentTarget.setAttribute("aria-pressed", String(!hides));
      rows.forEach((row, i) => (row.hidden = hidden.has(all[i].kind)));
    },
  }, html("span", {}, `${kKinds[kind] || kind} ${all.filter((event) => event.kind === kind).length}`)));
  section("events", "Events", "",
    html("div", { class: "card" }, html("div", { class: "filters", role: "group", "aria-label": "Kinds of events to list" }, ...filters),
      html("div", { class: "list" }, table(heads(...(runs.length > 1 ? ["Run"] : []), "#Step", "Event", ""), rows, { label: "Events" }))));
}

// --- Light and dark ---

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : window.matchMedia("(prefers-color-scheme: dark)").matches;
}
byId("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
});

document.title = `${runs.map((run) => run.name).join(", ")} · Trireme report`;
drawRuns();
drawBar();
drawCurves();
drawTimes();
drawLag();
drawStages();
drawEvaluations();
drawConfusion();
drawConfig();
drawEnvironment();
drawEvents();
drawAll();
window.triremeReport.ready = true;
