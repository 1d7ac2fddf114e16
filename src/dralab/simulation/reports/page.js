"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const main = document.querySelector("main");
const tip = document.getElementById("tip");
const colours = ["a", "b", "c", "d", "e", "f"].map((name) => `var(--${name})`);
// Curves differ by dashes as well: where two run on each other, both are seen, also in grey.
const dashes = ["", "7 4", "2 3", "10 3 2 3", "14 4", "4 2"];
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function make(tag, parent, text, attributes = {}) {
  const svg = ["svg", "path", "line", "text", "g", "rect", "circle"].includes(tag);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  if (text !== undefined && text !== null) node.textContent = text;
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (parent) parent.appendChild(node);
  return node;
}

function showTip(x, y, text) {
  tip.textContent = text;
  tip.style.display = "block";
  const left = x + 14 + tip.offsetWidth > innerWidth ? x - tip.offsetWidth - 10 : x + 14;
  tip.style.left = `${Math.max(4, Math.min(left, innerWidth - tip.offsetWidth - 4))}px`;
  tip.style.top = `${y + 14 + tip.offsetHeight > innerHeight ? y - tip.offsetHeight - 10 : y + 14}px`;
}
const hideTip = () => { tip.style.display = "none"; };
addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });

// A name, and where it has a meaning, a button that tells it: to who hovers, focuses or taps.
function term(parent, name) {
  const meaning = data.meanings[name];
  if (!meaning) { make("span", parent, name); return; }
  const button = make("button", parent, name, { class: "term", type: "button", "aria-description": meaning });
  const show = () => { const box = button.getBoundingClientRect(); showTip(box.left, box.bottom - 8, meaning); };
  for (const kind of ["pointerenter", "focus", "click"]) button.addEventListener(kind, show);
  for (const kind of ["pointerleave", "blur"]) button.addEventListener(kind, hideTip);
}

// What pointers, keys and fingers choose in a chart: `at` gives a choice for a place, `step` the
// next one in a direction, and `tell` shows it; it returns where its text belongs.
function choosing(node, { at, step, tell, clear = () => {} }) {
  node.setAttribute("tabindex", "0");
  const show = (choice, x, y) => {
    if (choice === null) { hideTip(); clear(); return; }
    const [text, own] = tell(choice), box = node.getBoundingClientRect();
    showTip(x ?? box.left + own[0], y ?? box.top + own[1], text);
  };
  const point = (event) => { if (!event.buttons || event.type === "pointerdown") show(at(event), event.clientX, event.clientY); };
  node.addEventListener("pointermove", point);
  node.addEventListener("pointerdown", point);
  const leave = () => { hideTip(); clear(); };
  node.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") leave(); });
  node.addEventListener("blur", leave);
  node.addEventListener("keydown", (event) => {
    const ways = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const way = ways[event.key];
    if (!way) return;
    event.preventDefault();
    show(step(...way));
  });
}

function number(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  const size = Math.abs(value);
  if (Number.isInteger(value) || size >= 1e5) return Math.round(value).toLocaleString("en");
  return value.toLocaleString("en", { maximumFractionDigits: size < 1 ? 4 : size < 100 ? 2 : 1 });
}

function span(seconds) {
  if (typeof seconds !== "number") return number(seconds);
  const sign = seconds < 0 ? "-" : "";
  let rest = Math.abs(seconds);
  if (rest < 60) return sign + number(Math.round(rest * 100) / 100) + " s";
  const days = Math.floor(rest / 86400); rest -= days * 86400;
  const hours = Math.floor(rest / 3600); rest -= hours * 3600;
  const minutes = Math.floor(rest / 60);
  if (days) return `${sign}${days} d${hours ? ` ${hours} h` : ""}`;
  if (hours) return `${sign}${hours} h${minutes ? ` ${minutes} min` : ""}`;
  const left = Math.round(rest - minutes * 60);
  return `${sign}${minutes} min${left ? ` ${left} s` : ""}`;
}

const percent = (value) => (typeof value === "number" ? `${number(value)} %` : number(value));
const formats = {
  time: span, number, percent, share: (v) => percent(typeof v === "number" ? Math.round(v * 1e6) / 1e4 : v),
};
const format = (value, kind) => (formats[kind] || number)(value);

// Steps that people count in: 1, 2, 5 times a power of ten; for time minutes, hours, days.
function ticks(low, high, wanted, kind) {
  const raw = (high - low) / wanted || 1;
  let step;
  if (kind === "time" && raw > 1) {
    const good = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 21600, 43200, 86400];
    step = good.find((item) => item >= raw) || Math.ceil(raw / 86400) * 86400;
  } else {
    const power = 10 ** Math.floor(Math.log10(raw));
    step = [1, 2, 5, 10].map((item) => item * power).find((item) => item >= raw * 0.999);
  }
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high * 1.0001 + 1e-12; at += step) {
    found.push(Math.abs(at) < step / 1e6 ? 0 : at);
  }
  return found;
}

function section(title, text, parent = main) {
  const box = make("section", parent);
  term(make("h2", box), title);
  if (text) make("p", box, text, { class: "quiet" });
  return box;
}

// A drawing of the width that there is, made anew where that changes.
function drawn(box, height, label, draw) {
  const svg = make("svg", box, null, { role: "img", "aria-label": label, height });
  let before = 0;
  new ResizeObserver(() => {
    const width = Math.round(svg.clientWidth);
    if (!width || width === before) return;
    before = width;
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.textContent = "";
    draw(width);
  }).observe(svg);
  return svg;
}

const frame = { left: 70, right: 10, top: 20, bottom: 26 };

// The lines and numbers of the vertical axis, and its unit.
function axis(svg, chart, width, height, most) {
  const { left, right, top, bottom } = frame;
  const py = (value) => height - bottom - value / most * (height - top - bottom);
  for (const value of ticks(0, most, 5, chart.yKind)) {
    make("line", svg, null, { class: "grid", x1: left, x2: width - right, y1: py(value), y2: py(value) });
    make("text", svg, format(value, chart.yKind), { x: left - 8, y: py(value) + 4, "text-anchor": "end" });
  }
  if (chart.unit) make("text", svg, chart.unit, { x: 0, y: 10 });
  return py;
}

function lines(chart, parent) {
  const box = section(chart.title, chart.text, parent);
  const legend = make("div", box, null, { class: "legend" });
  const height = 250, { left, right, top, bottom } = frame, x = chart.x;
  const low = x[0] ?? 0, high = x[x.length - 1] > low ? x[x.length - 1] : low + 1;
  let most = chart.most ?? 0;
  const told = chart.series.map((line) => {
    const own = line.y.reduce((found, value) => Math.max(found, value ?? 0), 0);
    most = Math.max(most, own);
    return `${line.name} up to ${format(own, chart.yKind)}`;
  });
  if (!chart.most) most = most * 1.05 || 1;
  chart.series.forEach((line, index) => {
    const item = make("span", legend);
    const sample = make("svg", item, null, { width: 28, height: 8, "aria-hidden": "true" });
    make("path", sample, null, { d: "M0 4H28", stroke: colours[index % colours.length], "stroke-width": 2, "stroke-dasharray": dashes[index % dashes.length] });
    item.append(line.name);
  });
  let px = () => 0, cross = null, chosen = 0;
  const svg = drawn(box, height, `${chart.title}: ${told.join(", ")}`, (width) => {
    px = (value) => left + (value - low) / (high - low) * (width - left - right);
    const py = axis(svg, chart, width, height, most);
    for (const value of ticks(low, high, Math.max(2, width / 120), chart.xKind)) {
      make("text", svg, format(value, chart.xKind), { x: px(value), y: height - 8, "text-anchor": px(value) > width - 30 ? "end" : "middle" });
    }
    chart.series.forEach((line, index) => {
      const colour = colours[index % colours.length];
      let path = "";
      line.y.forEach((value, at) => {
        if (value === null) return;
        const X = px(x[at]).toFixed(1), Y = py(value).toFixed(1);
        path += path === "" ? `M${X} ${Y}` : chart.steps ? `H${X}V${Y}` : `L${X} ${Y}`;
      });
      if (chart.steps && path) path += `H${px(high).toFixed(1)}`;
      if (chart.fill && index === 0 && path) {
        make("path", svg, null, { d: `${path}V${py(0)}H${px(low)}Z`, fill: colour, opacity: 0.12 });
      }
      make("path", svg, null, { d: path, fill: "none", stroke: colour, "stroke-width": 1.8, "stroke-linejoin": "round", "stroke-dasharray": dashes[index % dashes.length] });
    });
    cross = make("line", svg, null, { class: "cross", y1: top, y2: height - bottom, visibility: "hidden" });
  });
  choosing(svg, {
    at: (event) => {
      const box = svg.getBoundingClientRect();
      const value = low + (event.clientX - box.left - left) / (box.width - left - right) * (high - low);
      let first = 0, last = x.length - 1;
      while (first < last) {
        const middle = (first + last + 1) >> 1;
        if (x[middle] <= value) first = middle; else last = middle - 1;
      }
      return chosen = first;
    },
    // A key goes on by about a hundredth of the whole.
    step: (right) => {
      const by = Math.max(1, Math.round(x.length / 100));
      return chosen = Math.max(0, Math.min(x.length - 1, chosen + right * by));
    },
    tell: (at) => {
      cross.setAttribute("visibility", "visible");
      for (const end of ["x1", "x2"]) cross.setAttribute(end, px(x[at]));
      const rows = chart.series.map((line) => `${line.name}: ${format(line.y[at], chart.yKind)}`);
      return [[format(x[at], chart.xKind), ...rows].join("\n"), [px(x[at]), top]];
    },
    clear: () => cross?.setAttribute("visibility", "hidden"),
  });
}

function bars(chart, parent) {
  const box = section(chart.title, chart.text, parent);
  const height = 250, { left, right, bottom } = frame;
  const errors = chart.errors || [], count = chart.values.length;
  const most = Math.max(1e-9, ...chart.values.map((value, index) => value + (errors[index] || 0))) * 1.15;
  const told = chart.values.map((value, index) =>
    `${chart.labels[index]}: ${format(value, chart.yKind)}${errors[index] ? ` ± ${format(errors[index], chart.yKind)}` : ""}`);
  let step = 1, chosen = -1;
  const svg = drawn(box, height, `${chart.title}. ${told.join(", ")}`, (width) => {
    step = (width - left - right) / count;
    const py = axis(svg, chart, width, height, most);
    chart.values.forEach((value, index) => {
      const X = left + index * step, x = X + step / 2, error = errors[index];
      make("rect", svg, null, {
        x: X + step * 0.08, width: step * 0.84, y: py(value), height: Math.max(0, height - bottom - py(value)),
        rx: Math.min(3, step / 4), fill: colours[0],
      });
      if (error) {
        const high = py(value + error), low = py(Math.max(0, value - error)), half = Math.min(6, step / 6);
        make("path", svg, null, { class: "error", d: `M${x} ${high}V${low}M${x - half} ${high}h${2 * half}M${x - half} ${low}h${2 * half}` });
      }
      if (step > 60) make("text", svg, format(value, chart.yKind), { class: "value", x, y: py(value + (error || 0)) - 5, "text-anchor": "middle" });
      const every = Math.ceil(count * 78 / (width - left));
      if (index % every === 0) make("text", svg, chart.labels[index], { x, y: height - 8, "text-anchor": "middle" });
    });
  });
  choosing(svg, {
    at: (event) => {
      const index = Math.floor((event.clientX - svg.getBoundingClientRect().left - left) / step);
      return index >= 0 && index < count ? chosen = index : null;
    },
    step: (right) => chosen = Math.max(0, Math.min(count - 1, chosen + (right || 0))),
    tell: (index) => [told[index], [left + (index + 0.5) * step, 40]],
  });
}

// Rows under a time axis, on a canvas; `paint` draws what is between two times.
function rowsOverTime(chart, names, height, paint) {
  const box = section(chart.title, chart.text);
  const tools = make("div", box, null, { class: "tools" });
  const button = (text, label, does) => {
    const made = make("button", tools, text, { type: "button", "aria-label": label });
    made.addEventListener("click", does);
  };
  const canvas = make("canvas", box, null, { role: "img", "aria-label": `${chart.title}: ${names.length} rows. ${chart.text || ""} Arrow keys choose what is told.` });
  const context = canvas.getContext("2d");
  const row = Math.max(chart.halves ? 9 : 5, Math.min(18, Math.floor(height / Math.max(1, names.length))));
  const bottom = 28, full = names.length * row + bottom;
  canvas.style.height = `${full}px`;
  const view = { low: 0, high: chart.end || 1, left: 130, width: 0, row, context };
  view.px = (value) => view.left + (value - view.low) / (view.high - view.low) * (view.width - view.left - 4);
  const draw = () => {
    const scale = devicePixelRatio || 1, width = view.width = canvas.clientWidth;
    if (!width) return;
    view.left = Math.min(130, Math.round(width * 0.28));
    canvas.width = width * scale; canvas.height = full * scale;
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, full);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    const every = Math.max(1, Math.ceil(13 / row)), letters = Math.floor(view.left / 6.6);
    names.forEach((name, index) => {
      if (index % 2) { context.fillStyle = css("--paper"); context.fillRect(view.left, index * row, width, row); }
      if (index % every) return;
      context.fillStyle = css("--quiet"); context.textAlign = "right";
      context.fillText(name.length > letters ? `…${name.slice(1 - letters)}` : name, view.left - 8, Math.max(6, index * row + row / 2));
    });
    context.save();
    context.beginPath(); context.rect(view.left, 0, width - view.left, full - bottom); context.clip();
    paint(view);
    context.restore();
    context.fillStyle = css("--quiet"); context.textAlign = "center";
    for (const value of ticks(view.low, view.high, Math.max(2, width / 130), "time")) {
      const x = view.px(value);
      if (x < width - 24) context.fillText(span(value), x, full - 12);
    }
  };
  const zoom = (factor, when = (view.low + view.high) / 2) => {
    view.low = Math.max(0, when - (when - view.low) * factor);
    view.high = Math.min(chart.end, when + (view.high - when) * factor);
    draw();
  };
  const move = (by) => {
    const most = Math.max(-view.low, Math.min(chart.end - view.high, by));
    view.low += most; view.high += most;
    draw();
  };
  button("+", "Zoom in on time", () => zoom(0.5));
  button("−", "Zoom out of time", () => zoom(2));
  button("‹", "Earlier", () => move((view.low - view.high) / 2));
  button("›", "Later", () => move((view.high - view.low) / 2));
  button("all", "Show all of the time", () => { view.low = 0; view.high = chart.end; draw(); });
  view.at = (event) => {
    const box = canvas.getBoundingClientRect(), X = event.clientX - box.left;
    return [view.low + (X - view.left) / (view.width - view.left - 4) * (view.high - view.low), Math.floor((event.clientY - box.top) / row)];
  };
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, view.at(event)[0]);
  }, { passive: false });
  let from = null;
  canvas.addEventListener("pointerdown", (event) => { from = event.clientX; canvas.setPointerCapture(event.pointerId); });
  for (const kind of ["pointerup", "pointercancel"]) canvas.addEventListener(kind, () => { from = null; });
  canvas.addEventListener("pointermove", (event) => {
    if (from === null) return;
    move((from - event.clientX) / (view.width - view.left) * (view.high - view.low));
    from = event.clientX;
  });
  new ResizeObserver(() => { if (canvas.clientWidth !== view.width) draw(); }).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  return [canvas, view];
}

function gantt(chart) {
  const lanes = chart.lanes;
  // Steps of the golden angle: neighbours in the list never look alike.
  const palette = chart.groups.map((_, index) => `hsl(${(212 + index * 137.508) % 360} 58% ${54 + index % 3 * 6}%)`);
  const [canvas, view] = rowsOverTime(chart, lanes, 620, ({ context, px, row, low, high, left, width }) => {
    // Two runs in one lane: the first above, the second below.
    const part = chart.halves ? (row - 1) / 2 : row - 1;
    for (const [lane, start, end, task] of chart.rects) {
      if (end < low || start > high) continue;
      const group = chart.tasks[task][1], X = px(start), W = Math.max(0.6, px(end) - X - 0.5);
      context.fillStyle = palette[group];
      context.fillRect(X, lane * row + 0.5 + (chart.halves ? group * part : 0), W, part);
      if (W > 34 && part > 10) {
        context.fillStyle = "#fff"; context.textAlign = "left";
        context.fillText(chart.tasks[task][0].slice(0, Math.floor(W / 7)), X + 4, lane * row + row / 2);
      }
    }
    context.strokeStyle = css("--quiet");
    for (const [lane, start, end] of chart.outages || []) {
      if (end < low || start > high) continue;
      const X = px(start), W = Math.max(1, px(end) - X);
      context.save();
      context.beginPath(); context.rect(X, lane * row, W, row); context.clip(); context.beginPath();
      for (let x = Math.max(X - row, left - row); x < Math.min(X + W, width); x += 5) {
        context.moveTo(x, (lane + 1) * row); context.lineTo(x + row, lane * row);
      }
      context.stroke(); context.restore();
    }
  });
  const all = [...chart.rects, ...chart.outages || []].sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  let chosen = -1;
  choosing(canvas, {
    at: (event) => {
      const [when, lane] = view.at(event);
      const found = all.findIndex((item) => item[0] === lane && item[1] <= when && item[2] >= when);
      return found < 0 ? null : chosen = found;
    },
    step: (right, down) => {
      const next = down && chosen >= 0
        ? all.findIndex((item) => (down > 0 ? item[0] > all[chosen][0] : item[0] === all[chosen][0] - 1))
        : chosen + (right || 1);
      return all.length ? chosen = Math.max(0, Math.min(all.length - 1, next < 0 ? chosen : next)) : null;
    },
    tell: (at) => {
      const [lane, start, end, which] = all[at], task = chart.tasks[which];
      const place = [Math.max(view.left, Math.min(view.width, view.px(start))), lane * view.row];
      if (!task) return [`${lanes[lane]}\ndown for ${span(end - start)} from ${span(start)}`, place];
      const group = chart.groups[task[1]] ? `${chart.halves ? "run" : "user"}: ${chart.groups[task[1]]}\n` : "";
      return [`${task[0]}\n${lanes[lane]}\n${group}waited ${span(task[2])}\nran ${span(end - start)} from ${span(start)}`, place];
    },
  });
}

// How much of each row was held in each stretch of time: the more, the higher its bar. With
// `halves` what is less than zero stands above, what is more below.
function heat(chart) {
  const count = chart.values[0]?.length || 1, width = chart.end / count;
  const [canvas, view] = rowsOverTime(chart, chart.rows, 700, ({ context, px, row }) => {
    const high = chart.halves ? (row - 1) / 2 : row - 1;
    const [below, above] = [css("--b"), css("--a")];
    chart.values.forEach((line, lane) => line.forEach((value, at) => {
      if (!value) return;
      const size = Math.max(1, Math.abs(value) / 100 * high), X = px(at * width);
      const base = lane * row + (chart.halves ? row / 2 : row - 0.5);
      context.fillStyle = value < 0 || !chart.halves ? above : below;
      context.fillRect(X, value > 0 && chart.halves ? base : base - size, Math.max(0.6, px((at + 1) * width) - X), size);
    }));
  });
  let chosen = [-1, 0];
  const within = (value, most) => Math.max(0, Math.min(most - 1, value));
  choosing(canvas, {
    at: (event) => {
      const [when, lane] = view.at(event), at = Math.floor(when / width);
      return chart.values[lane]?.[at] === undefined ? null : chosen = [at, lane];
    },
    step: (right, down) => chosen = [within(chosen[0] + right, count), within(chosen[1] + down, chart.rows.length)],
    tell: ([at, lane]) => {
      const value = chart.values[lane][at];
      const held = chart.halves
        ? value ? `${Math.abs(value)} % more held in the ${value < 0 ? "first" : "second"} run` : "as much held in both runs"
        : `${value} % held`;
      const when = `${span(at * width)} to ${span((at + 1) * width)}`;
      return [`${chart.rows[lane]}\n${when}\n${held}`, [Math.max(view.left, Math.min(view.width, view.px(at * width))), lane * view.row]];
    },
  });
}

function table(chart) {
  const box = section(chart.title, chart.text);
  const tools = make("div", box, null, { class: "tools" });
  const search = make("input", tools, null, { placeholder: "filter", "aria-label": `Filter ${chart.title}` });
  const count = make("span", tools, null, { class: "quiet", role: "status" });
  const wide = make("div", box, null, { class: "wide", tabindex: "0", role: "region", "aria-label": chart.title });
  const sheet = make("table", wide);
  const head = make("tr", make("thead", sheet));
  const body = make("tbody", sheet);
  const kinds = chart.rowKinds || [];
  let rows = chart.rows.map((cells, at) => [cells, kinds[at]]), sorted = -1, up = false;
  function fill() {
    body.textContent = "";
    const wanted = search.value.toLowerCase();
    const shown = rows.filter(([cells]) => !wanted || cells.some((cell) => String(cell).toLowerCase().includes(wanted)));
    for (const [cells, kind] of shown.slice(0, 300)) {
      const line = make("tr", body);
      cells.forEach((cell, index) => {
        const of = chart.columns[index][1], text = format(cell, of === "by row" ? kind : of);
        const made = make("td", line, null, typeof cell === "string" ? { class: "text" } : {});
        if (typeof cell === "string") term(made, text); else made.textContent = text;
      });
    }
    count.textContent = shown.length > 300 ? `the first 300 of ${number(shown.length)}` : "";
  }
  const heads = chart.columns.map(([name], index) => {
    const cell = make("th", head, null, { scope: "col", class: typeof chart.rows[0]?.[index] === "string" ? "text" : "" });
    const button = make("button", cell, name, { class: "sort", type: "button" });
    if (data.meanings[name]) {
      button.setAttribute("aria-description", data.meanings[name]);
      const show = () => { const at = button.getBoundingClientRect(); showTip(at.left, at.bottom - 8, data.meanings[name]); };
      for (const kind of ["pointerenter", "focus"]) button.addEventListener(kind, show);
      for (const kind of ["pointerleave", "blur"]) button.addEventListener(kind, hideTip);
    }
    button.addEventListener("click", () => {
      up = sorted === index ? !up : true;
      sorted = index;
      const sign = up ? 1 : -1;
      rows.sort(([a], [b]) => {
        const [p, q] = [a[index], b[index]];
        if (p === q) return 0;
        if (p === null) return 1;
        if (q === null) return -1;
        return (p < q ? -1 : 1) * sign;
      });
      heads.forEach((each, at) => (at === index ? each.setAttribute("aria-sort", up ? "ascending" : "descending") : each.removeAttribute("aria-sort")));
      fill();
    });
    return cell;
  });
  search.addEventListener("input", fill);
  fill();
}

make("h1", main, data.title);
make("p", main, data.subtitle, { class: "quiet" });
for (const note of data.notes) make("p", main, note, { class: "note" });
if (data.cards.length) {
  const cards = make("div", main, null, { class: "cards" });
  for (const [name, value, kind] of data.cards) {
    const card = make("div", cards, null, { class: "card" });
    make("b", card, format(value, kind));
    term(card, name);
  }
}
const kinds = { lines, bars, gantt, heat, table };
let pair = null;
for (const chart of data.charts) {
  if (chart.half) {
    pair = pair || make("div", main, null, { class: "pair" });
    kinds[chart.kind](chart, pair);
  } else {
    pair = null;
    kinds[chart.kind](chart, main);
  }
}
if (data.definitions.length) {
  const box = make("details", main);
  make("summary", box, "What the numbers mean");
  const list = make("dl", box);
  for (const [name, text] of data.definitions) { make("dt", list, name); make("dd", list, text); }
}
