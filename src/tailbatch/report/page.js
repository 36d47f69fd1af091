"use strict";
(() => {
  const report = JSON.parse(document.getElementById("report-data").textContent);
  const byId = (id) => document.getElementById(id);
  const chosen = (name) => document.querySelector(`input[name="${name}"]:checked`)?.value;

  // ---- drawing -------------------------------------------------------------------------------

  const NS = "http://www.w3.org/2000/svg";
  function node(parent, tag, attributes = {}, text = null) {
    const made = document.createElementNS(NS, tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text !== null) made.textContent = text; // never as markup: names come from untrusted files
    parent.append(made);
    return made;
  }
  function element(parent, tag, text = null, attributes = {}) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text !== null) made.textContent = text;
    parent.append(made);
    return made;
  }

  const MARKS = {
    o: (r) => `M${-r},0a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0Z`,
    s: (r) => `M${-r},${-r}H${r}V${r}H${-r}Z`,
    "^": (r) => `M0,${-1.2 * r}L${1.1 * r},${r}H${-1.1 * r}Z`,
    v: (r) => `M0,${1.2 * r}L${1.1 * r},${-r}H${-1.1 * r}Z`,
    D: (r) => `M0,${-1.3 * r}L${1.3 * r},0L0,${1.3 * r}L${-1.3 * r},0Z`,
    P: (r) => `M${-r / 2},${-r}H${r / 2}V${-r / 2}H${r}V${r / 2}H${r / 2}V${r}H${-r / 2}V${r / 2}H${-r}V${-r / 2}H${-r / 2}Z`,
    X: (r) => `M${-r},${-r}L0,${-r / 2}L${r},${-r}L${r / 2},0L${r},${r}L0,${r / 2}L${-r},${r}L${-r / 2},0Z`,
    h: (r) => `M${-r},${-r / 2}L0,${-1.2 * r}L${r},${-r / 2}V${r / 2}L0,${1.2 * r}L${-r},${r / 2}Z`,
  };
  function mark(parent, look, x, y, radius, hollow = false) {
    return node(parent, "path", {
      d: MARKS[look.marker](radius), transform: `translate(${x.toFixed(1)},${y.toFixed(1)})`,
      class: hollow ? "dot hollow" : "dot", [hollow ? "stroke" : "fill"]: `var(--s${look.color})`,
    });
  }

  const short = (value) => {
    if (value === 0) return "0";
    const size = Math.abs(value);
    if (size >= 1e5 || size < 1e-3) return value.toExponential(0).replace("e+", "e");
    return Number(value.toPrecision(3)).toLocaleString("en-US", { maximumSignificantDigits: 3 });
  };
  function ticks(low, high, about) {
    const raw = (high - low) / about;
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].find((factor) => factor * power >= raw) * power;
    const first = Math.ceil(low / step - 1e-9);
    const count = Math.floor(high / step + 1e-9) - first;
    return Array.from({ length: count + 1 }, (_, place) => (first + place) * step);
  }
  function decades(low, high) {
    const all = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++)
      for (const factor of high / low > 50 ? [1] : [1, 2, 5]) all.push(factor * 10 ** power);
    return all.filter((value) => value >= low * 0.999 && value <= high * 1.001);
  }
  function scale(values, from, to, { log = false, whole = false, pad = 0.04, include = [] } = {}) {
    const all = [...values, ...include].filter((value) => Number.isFinite(value) && (!log || value > 0));
    let low = Math.min(...all), high = Math.max(...all);
    if (!all.length) [low, high] = log ? [1, 10] : [0, 1];
    const change = log ? Math.log : (value) => value;
    const back = log ? Math.exp : (value) => value;
    let [a, b] = [change(low), change(high)];
    if (a === b) [a, b] = [a - 0.5, b + 0.5];
    const room = (b - a) * pad;
    [a, b] = [a - room, b + room];
    const place = (value) => from + ((change(value) - a) / (b - a)) * (to - from);
    const about = Math.max(2, Math.abs(to - from) / (from > to ? 48 : 75));
    const marks = log ? decades(back(a), back(b)) : ticks(a, b, about).filter((value) => !whole || Number.isInteger(value));
    return { place, marks };
  }

  // One chart: lines and dots over two axes, as wide as its host.
  function draw(host, { label, x, y, lines = [], dots = [], levels = [] }) {
    const width = Math.max(260, host.clientWidth), height = Math.round(Math.min(400, Math.max(250, width * 0.5)));
    const box = { left: 54, right: width - 10, top: 12, bottom: height - 44 };
    host.replaceChildren();
    const svg = node(host, "svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
    const points = [...lines.flatMap((line) => line.points), ...dots.flatMap((group) => group.points)];
    const across = scale(points.map((p) => p[0]), box.left, box.right, { log: x.log, whole: x.whole, pad: 0.02, include: x.include });
    const up = scale([...points.map((p) => p[1]), ...levels.map((level) => level.value)], box.bottom, box.top,
      { log: y.log, include: y.include });
    for (const value of up.marks) {
      const at = up.place(value);
      node(svg, "line", { x1: box.left, x2: box.right, y1: at, y2: at, class: "grid" });
      node(svg, "text", { x: box.left - 8, y: at + 4, "text-anchor": "end" }, short(value));
    }
    for (const value of x.marks || across.marks)
      node(svg, "text", { x: across.place(value), y: box.bottom + 18, "text-anchor": "middle" }, x.names ? x.names[value] : short(value));
    node(svg, "line", { x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom, class: "grid" });
    node(svg, "text", { x: box.right, y: height - 6, "text-anchor": "end", class: "title" }, x.title);
    for (const level of levels) {
      const at = up.place(level.value);
      node(svg, "line", { x1: box.left, x2: box.right, y1: at, y2: at, class: "line",
        stroke: level.look ? `var(--s${level.look.color})` : "var(--muted)", "stroke-dasharray": "5 4" });
    }
    for (const group of dots)
      for (const [px, py, hollow, title] of group.points) {
        if (py === null || px === null || (x.log && px <= 0)) continue;
        const dot = mark(svg, group.look, across.place(px), up.place(py), 3.1, hollow);
        node(dot, "title", {}, title);
      }
    for (const line of lines) {
      const placed = line.points.filter((p) => p[1] !== null && (!x.log || p[0] > 0)).map((p) => [across.place(p[0]), up.place(p[1])]);
      const path = node(svg, "path", { class: "line", stroke: `var(--s${line.look.color})`,
        d: placed.map((p, place) => (place ? "L" : "M") + p[0].toFixed(1) + "," + p[1].toFixed(1)).join("") });
      if (line.look.dash.length) path.setAttribute("stroke-dasharray", line.look.dash.join(" "));
      const every = Math.max(1, Math.ceil(placed.length / 7));
      placed.forEach((p, place) => { if (place % every === 0 || place === placed.length - 1) mark(svg, line.look, ...p, 3.6); });
    }
    return { svg, across, up };
  }

  // A critical-difference diagram: arms at their mean ranks, bars over those that do not differ significantly.
  function drawRanks(host, ranks) {
    const arms = ranks.arms, width = Math.max(260, host.clientWidth);
    const tick = 26 + ranks.groups.length * 10, height = tick + 34 + arms.length * 24;
    host.replaceChildren();
    const label = "Mean ranks, 1 is best: " + arms.map(([name, rank]) => `${name} ${rank.toFixed(2)}`).join(", ") +
      `. Critical difference ${ranks.critical.toFixed(2)}.`;
    const svg = node(host, "svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
    const count = Math.max(2, arms.length), left = 16, right = width - 16;
    const place = (rank) => left + ((rank - 1) / (count - 1)) * (right - left);
    node(svg, "line", { x1: left, x2: right, y1: tick, y2: tick, stroke: "var(--ink)" });
    for (let rank = 1; rank <= count; rank++) {
      node(svg, "line", { x1: place(rank), x2: place(rank), y1: tick - 5, y2: tick, stroke: "var(--ink)" });
      node(svg, "text", { x: place(rank), y: tick - 9, "text-anchor": "middle" }, rank);
    }
    arms.forEach(([name, rank], order) => {
      const at = place(rank), y = tick + 44 + ranks.groups.length * 9 + (order - 1) * 22, before = at > width / 2;
      node(svg, "path", { d: `M${at},${tick}V${y}`, class: "line", stroke: `var(--s${report.looks[name].color})`, style: "stroke-width:1.5" });
      mark(svg, report.looks[name], at, tick, 4.5);
      node(svg, "text", { x: at + (before ? -6 : 6), y: y + 1, "text-anchor": before ? "end" : "start", class: "title" }, `${name}  ${rank.toFixed(2)}`);
    });
    ranks.groups.forEach(([from, to], order) => {
      const y = tick + 10 + order * 9;
      node(svg, "line", { x1: place(from) - 5, x2: place(to) + 5, y1: y, y2: y, stroke: "var(--ink)", "stroke-width": 4, "stroke-linecap": "round" });
    });
    svg.setAttribute("viewBox", `0 0 ${width} ${tick + 60 + ranks.groups.length * 9 + arms.length * 22}`);
  }

  // ---- what the charts show ------------------------------------------------------------------

  const AXES = { number: "epoch", steps: "batches", seconds: "seconds of training" };
  const hidden = new Set(Object.keys(report.looks).filter((arm) => !report.looks[arm].shown));
  const data = byId("pick-data"), learner = byId("pick-learner");
  const cell = () => report.cells.find((each) => each.data === data.value && each.learner === learner.value);

  function table(host, header, rows, caption) {
    host.replaceChildren();
    const made = element(host, "table");
    element(element(made, "caption"), "span", caption);
    const top = element(element(made, "thead"), "tr");
    header.forEach((name) => element(top, "th", name, { scope: "col" }));
    const body = element(made, "tbody");
    for (const row of rows) {
      const line = element(body, "tr");
      row.forEach((value, place) => place ? element(line, "td", value, { class: "number" }) : element(line, "th", value, { scope: "row", class: "arm" }));
    }
  }
  const shown = (value) => value === null || value === undefined ? "–" : short(value);

  function drawCurves(now) {
    const host = byId("chart-curves"), axis = chosen("axis"), measure = report.measures[Number(chosen("measure"))];
    if (!host) return;
    const arms = Object.keys(now.curves).filter((arm) => !hidden.has(arm) && now.curves[arm][measure.key]);
    const lines = arms.map((arm) => ({
      look: report.looks[arm],
      points: now.curves[arm][axis].map((value, place) => [value, now.curves[arm][measure.key][place]]),
    }));
    const ends = arms.map((arm) => `${arm} ends at ${shown(now.curves[arm][measure.key].at(-1))}`).join(", ");
    draw(host, { label: `${measure.title} by ${AXES[axis]}, ${now.learner} on ${now.data}: ${ends}.`,
      x: { title: AXES[axis], whole: axis !== "seconds" }, y: {}, lines });
    byId("title-curves").textContent = `${measure.title} by ${AXES[axis]}`;
    table(byId("numbers-curves"), report.convergence.header, Object.entries(now.convergence).map(([arm, values]) => [arm, ...values.map(shown)]),
      `How fast ${now.learner} learns on ${now.data}`);
  }

  function drawLabels(now) {
    const labels = report.labels[now.data];
    for (const [kind, title, words] of [["gain", "change of average precision", "changes by"], ["exposure", "drawn / expected", "is drawn"]]) {
      const host = byId(`chart-${kind}`), values = now[kind];
      if (!host) continue;
      const arms = values && labels ? Object.keys(values).filter((arm) => !hidden.has(arm)) : [];
      if (!arms.length) { host.replaceChildren(); element(host, "p", kind === "gain" ? "There is no other strategy to compare." : "These runs have no results by label.", { class: "muted" }); continue; }
      const dots = arms.map((arm) => ({ look: report.looks[arm], points: values[arm].map((value, place) =>
        [labels.positives[place], value, !labels.minority[place], `${labels.names[place]}, ${arm}: ${shown(value)}`]) }));
      const neutral = kind === "gain" ? 0 : 1;
      const mean = (list) => list.length ? shown(list.reduce((sum, value) => sum + value, 0) / list.length) : "no value";
      const rare = arms.map((arm) => `${arm} ${mean(values[arm].filter((value, place) => value !== null && labels.minority[place]))}`);
      draw(host, { label: `Each label's ${title} against its positives, ${now.learner} on ${now.data}. Mean over minority labels: ${rare.join(", ")}.`,
        x: { title: "positives of the label (log scale)", log: true }, y: { include: [neutral] }, dots, levels: [{ value: neutral }] });
    }
  }

  function drawPressure(now) {
    const host = byId("chart-pressure");
    if (!host) return;
    const metric = chosen("pressure-metric"), strategies = Object.entries(now.pressure || {});
    byId("panel-pressure").hidden = !strategies.length;
    if (!strategies.length) return;
    const lines = strategies.map(([arm, panel]) => ({ look: report.looks[arm], points: panel.pressure.map((value, place) => [value, panel[metric][place]]) }));
    const levels = strategies.slice(0, 1).map(([, panel]) => ({ value: panel.baseline[metric], look: report.looks[report.baseline] }));
    const said = strategies.map(([arm, panel]) => panel.pressure.map((value, place) => `${arm} ${value}: ${shown(panel[metric][place])}`).join(", "));
    draw(host, { label: `By selection pressure, ${now.learner} on ${now.data}: ${said.join("; ")}; ${report.baseline} ${shown(levels[0].value)}.`,
      x: { title: "selection pressure (log scale)", log: true, marks: strategies[0][1].pressure }, y: {}, lines, levels });
  }

  // Densities: of the first strategy shown by number of minority labels, or of all strategies shown.
  function drawLosses(now) {
    const host = byId("chart-losses");
    if (!host) return;
    const epoch = chosen("loss-epoch"), kept = now.density?.[epoch], byArm = chosen("loss-view") === "arms";
    byId("panel-losses").hidden = !now.density;
    const arms = kept ? Object.keys(kept.arms).filter((arm) => !hidden.has(arm)) : [];
    byId("key-losses").replaceChildren();
    if (!arms.length) { host.replaceChildren(); return; }
    const heights = byArm
      ? arms.filter((arm) => kept.arms[arm].any).map((arm) => [arm, report.looks[arm], kept.arms[arm].any])
      : report.groups.map(([text, look], count) => [text, look, kept.arms[arms[0]][count]]).filter((each) => each[2]);
    const lines = heights.map(([, look, values]) => ({ look, points: values.map((value, place) => [kept.loss[place], value]) }));
    const peaks = heights.map(([text, , values]) => `${text} ${shown(kept.loss[values.indexOf(Math.max(...values))])}`);
    const what = byArm ? "samples with a minority label" : arms[0];
    byId("title-losses").textContent = `Loss density after epoch ${epoch}, ${what}`;
    draw(host, { label: `Density of the samples' losses after epoch ${epoch}, ${now.learner} on ${now.data}, ${what}. Most frequent loss: ${peaks.join(", ")}.`,
      x: { title: "loss of a sample (BCE)" }, y: { include: [0] }, lines });
    for (const [text, look] of heights) keyEntry(element(byId("key-losses"), "li"), text, look);
  }

  function keyEntry(label, text, look) {
    const sample = node(label, "svg", { viewBox: "0 0 36 14", "aria-hidden": "true" });
    const line = node(sample, "path", { d: "M1,7H35", stroke: `var(--s${look.color})`, "stroke-width": 2, fill: "none" });
    if (look.dash.length) line.setAttribute("stroke-dasharray", look.dash.join(" "));
    mark(sample, look, 18, 7, 4);
    element(label, "span", text);
  }

  function legend() {
    const host = byId("legend");
    if (!host) return;
    for (const [arm, look] of Object.entries(report.looks)) {
      const label = element(element(host, "li"), "label");
      const box = element(label, "input", null, { type: "checkbox" });
      box.checked = !hidden.has(arm);
      box.addEventListener("change", () => { box.checked ? hidden.delete(arm) : hidden.add(arm); redraw(); });
      keyEntry(label, arm, look);
    }
  }

  function ranks() {
    const host = byId("chart-ranks");
    if (host) drawRanks(host, report.ranks[chosen("ranks")]);
  }
  function redraw() {
    ranks();
    const now = data && cell();
    if (!now) return;
    drawCurves(now);
    drawLabels(now);
    drawPressure(now);
    drawLosses(now);
  }

  // Only models that ran on the chosen dataset are offered.
  function offerLearners() {
    const kept = learner.value, there = report.cells.filter((each) => each.data === data.value).map((each) => each.learner);
    learner.replaceChildren(...there.map((name) => new Option(name, name)));
    learner.value = there.includes(kept) ? kept : there[0];
  }

  // A link to a row's runs opens the sections they are folded into.
  function unfold() {
    const target = location.hash.length > 1 && byId(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let each = target; each; each = each.parentElement) if (each.tagName === "DETAILS") each.open = true;
    target.nextElementSibling?.querySelector("details")?.setAttribute("open", "");
    target.scrollIntoView();
  }
  addEventListener("hashchange", unfold);

  legend();
  unfold();
  if (data) {
    offerLearners();
    data.addEventListener("change", () => { offerLearners(); redraw(); });
    learner.addEventListener("change", redraw);
  }
  document.querySelectorAll("fieldset.switch input").forEach((input) => input.addEventListener("change", redraw));
  let width = 0;
  new ResizeObserver(() => { if (width !== document.body.clientWidth) { width = document.body.clientWidth; redraw(); } }).observe(document.body);
  redraw();
})();
