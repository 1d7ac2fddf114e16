"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const main = document.querySelector("main");
const tip = document.getElementById("tip");
const colours = ["a", "b", "c", "d", "e", "f"].map((name) => `var(--${name})`);
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

function showTip(event, text) {
  tip.textContent = text;
  tip.style.display = "block";
  const left = event.clientX + 14 + tip.offsetWidth > innerWidth
    ? event.clientX - tip.offsetWidth - 10 : event.clientX + 14;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${event.clientY + 14}px`;
}
const hideTip = () => { tip.style.display = "none"; };

function number(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  const size = Math.abs(value);
  if (Number.isInteger(value) || size >= 1e5) return Math.round(value).toLocaleString("en");
  return value.toLocaleString("en", { maximumFractionDigits: size < 1 ? 4 : size < 100 ? 2 : 1 });
}

function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
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

const formats = {
  time: span, number, percent: (v) => (v === null ? "–" : `${number(v)} %`),
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
  make("h2", box, title);
  if (text) make("p", box, text, { class: "quiet" });
  return box;
}

function lines(chart, parent) {
  const box = section(chart.title, chart.text, parent);
  const legend = make("div", box, null, { class: "legend" });
  const width = parent === main ? 1140 : 560, height = 250;
  const left = 58, right = 8, top = 8, bottom = 26;
  const x = chart.x;
  const low = x[0] ?? 0, high = x[x.length - 1] > low ? x[x.length - 1] : low + 1;
  let most = chart.most ?? 0;
  for (const line of chart.series) for (const value of line.y) if (value > most) most = value;
  if (!chart.most) most = most * 1.05 || 1;
  const svg = make("svg", box, null, { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": chart.title });
  const px = (value) => left + (value - low) / (high - low) * (width - left - right);
  const py = (value) => height - bottom - value / most * (height - top - bottom);
  for (const value of ticks(0, most, 5, chart.yKind)) {
    make("line", svg, null, { class: "grid", x1: left, x2: width - right, y1: py(value), y2: py(value) });
    make("text", svg, format(value, chart.yKind), { x: left - 8, y: py(value) + 4, "text-anchor": "end" });
  }
  for (const value of ticks(low, high, width / 120, chart.xKind)) {
    make("text", svg, format(value, chart.xKind), { x: px(value), y: height - 8, "text-anchor": "middle" });
  }
  chart.series.forEach((line, index) => {
    const colour = colours[index % colours.length];
    const item = make("span", legend);
    make("i", item).style.background = colour;
    item.append(line.name);
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
    make("path", svg, null, { d: path, fill: "none", stroke: colour, "stroke-width": 1.8, "stroke-linejoin": "round" });
  });
  const cross = make("line", svg, null, { class: "cross", y1: top, y2: height - bottom, x1: 0, x2: 0, visibility: "hidden" });
  svg.addEventListener("mousemove", (event) => {
    const at = svg.getBoundingClientRect();
    const value = low + ((event.clientX - at.left) / at.width * width - left) / (width - left - right) * (high - low);
    let first = 0, last = x.length - 1;
    while (first < last) {
      const middle = (first + last + 1) >> 1;
      if (x[middle] <= value) first = middle; else last = middle - 1;
    }
    cross.setAttribute("visibility", "visible"); cross.setAttribute("x1", px(x[first])); cross.setAttribute("x2", px(x[first]));
    const rows = chart.series.map((line) => `${line.name}: ${format(line.y[first], chart.yKind)}`);
    showTip(event, [format(x[first], chart.xKind), ...rows].join("\n"));
  });
  svg.addEventListener("mouseleave", () => { hideTip(); cross.setAttribute("visibility", "hidden"); });
}

function bars(chart, parent) {
  const box = section(chart.title, chart.text, parent);
  const width = parent === main ? 1140 : 560, height = 250, left = 58, right = 8, top = 14, bottom = 26;
  const svg = make("svg", box, null, { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": chart.title });
  const errors = chart.errors || [];
  const most = Math.max(1e-9, ...chart.values.map((value, index) => value + (errors[index] || 0))) * 1.05;
  const step = (width - left - right) / chart.values.length;
  const py = (value) => height - bottom - value / most * (height - top - bottom);
  for (const value of ticks(0, most, 5, chart.yKind)) {
    make("line", svg, null, { class: "grid", x1: left, x2: width - right, y1: py(value), y2: py(value) });
    make("text", svg, format(value, chart.yKind), { x: left - 8, y: py(value) + 4, "text-anchor": "end" });
  }
  chart.values.forEach((value, index) => {
    const X = left + index * step;
    const bar = make("rect", svg, null, {
      x: X + step * 0.08, width: step * 0.84, y: py(value), height: Math.max(0, height - bottom - py(value)),
      rx: Math.min(3, step / 4), fill: colours[0],
    });
    const error = errors[index];
    const told = `${chart.labels[index]}: ${format(value, chart.yKind)}${error ? ` ± ${format(error, chart.yKind)}` : ""}`;
    bar.addEventListener("mousemove", (event) => showTip(event, told));
    if (error) {
      const x = X + step / 2, high = py(value + error), low = py(Math.max(0, value - error)), half = Math.min(6, step / 6);
      make("path", svg, null, { class: "error", d: `M${x} ${high}V${low}M${x - half} ${high}h${2 * half}M${x - half} ${low}h${2 * half}` });
    }
    bar.addEventListener("mouseleave", hideTip);
    const every = Math.ceil(chart.labels.length * 78 / (width - left));
    if (index % every === 0) make("text", svg, chart.labels[index], { x: X + step / 2, y: height - 8, "text-anchor": "middle" });
  });
}

function gantt(chart) {
  const box = section(chart.title, chart.text);
  const tools = make("div", box, null, { class: "tools" });
  const whole = make("button", tools, "whole run");
  make("span", tools, "wheel: zoom · drag: move · hover: what it is", { class: "quiet" });
  const canvas = make("canvas", box);
  const context = canvas.getContext("2d");
  const lanes = chart.lanes, left = 130, bottom = 24;
  const row = Math.max(chart.halves ? 7 : 3, Math.min(18, Math.floor(620 / Math.max(1, lanes.length))));
  // Two runs in one lane: the first above, the second below.
  const part = chart.halves ? (row - 1) / 2 : row - 1;
  const top = (lane, group) => lane * row + 0.5 + (chart.halves ? group * part : 0);
  const height = lanes.length * row + bottom + 4;
  canvas.style.height = `${height}px`;
  let low = 0, high = chart.end || 1, scale = 1, width = 0;
  // Steps of the golden angle: neighbours in the list never look alike.
  const palette = chart.groups.map((_, index) => `hsl(${(212 + index * 137.508) % 360} 58% ${54 + index % 3 * 6}%)`);
  const px = (value) => left + (value - low) / (high - low) * (width - left - 4);
  function draw() {
    scale = devicePixelRatio || 1;
    width = canvas.clientWidth;
    canvas.width = width * scale; canvas.height = height * scale;
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    const every = Math.max(1, Math.ceil(13 / row));
    lanes.forEach((name, index) => {
      if (index % 2) { context.fillStyle = css("--paper"); context.fillRect(left, index * row, width, row); }
      if (index % every === 0) {
        context.fillStyle = css("--quiet"); context.textAlign = "right";
        context.fillText(name.length > 19 ? `…${name.slice(-18)}` : name, left - 8, index * row + row / 2);
      }
    });
    context.save();
    context.beginPath(); context.rect(left, 0, width - left, height - bottom); context.clip();
    for (const [lane, start, end, task] of chart.rects) {
      if (end < low || start > high) continue;
      const X = px(start), W = Math.max(0.6, px(end) - X - 0.5);
      context.fillStyle = palette[chart.tasks[task][1]];
      context.fillRect(X, top(lane, chart.tasks[task][1]), W, part);
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
    context.restore();
    context.fillStyle = css("--quiet"); context.textAlign = "center";
    for (const value of ticks(low, high, width / 130, "time")) {
      context.fillText(span(value), px(value), height - 10);
    }
  }
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    const X = event.clientX - box.left;
    return [low + (X - left) / (width - left - 4) * (high - low), Math.floor((event.clientY - box.top) / row)];
  };
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const [when] = at(event), factor = event.deltaY > 0 ? 1.25 : 0.8;
    low = Math.max(0, when - (when - low) * factor);
    high = Math.min(chart.end, when + (high - when) * factor);
    draw();
  }, { passive: false });
  let from = null;
  canvas.addEventListener("pointerdown", (event) => { from = event.clientX; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointerup", () => { from = null; });
  canvas.addEventListener("pointermove", (event) => {
    if (from !== null) {
      let move = (from - event.clientX) / (width - left) * (high - low);
      move = Math.max(-low, Math.min(chart.end - high, move));
      low += move; high += move; from = event.clientX;
      draw();
      return;
    }
    const [when, lane] = at(event);
    const inside = (item) => item[0] === lane && item[1] <= when && item[2] >= when;
    const found = chart.rects.find(inside), down = (chart.outages || []).find(inside);
    if (!found && down) { showTip(event, `${lanes[lane]}\ndown for ${span(down[2] - down[1])} from ${span(down[1])}`); return; }
    if (!found) { hideTip(); return; }
    const task = chart.tasks[found[3]];
    showTip(event, `${task[0]}\n${lanes[lane]}\n${chart.groups[task[1]] ? `${chart.halves ? "run" : "user"}: ${chart.groups[task[1]]}\n` : ""}waited ${span(task[2])}\nran ${span(found[2] - found[1])} from ${span(found[1])}`);
  });
  canvas.addEventListener("pointerleave", hideTip);
  whole.addEventListener("click", () => { low = 0; high = chart.end; draw(); });
  addEventListener("resize", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
}

function table(chart) {
  const box = section(chart.title, chart.text);
  const tools = make("div", box, null, { class: "tools" });
  const search = make("input", tools, null, { placeholder: "filter", "aria-label": "filter" });
  const wide = make("div", box, null, { class: "wide" });
  const sheet = make("table", wide);
  const head = make("tr", make("thead", sheet));
  const body = make("tbody", sheet);
  let rows = chart.rows.slice(), up = false;
  function fill() {
    body.textContent = "";
    const wanted = search.value.toLowerCase();
    const shown = rows.filter((row) => !wanted || row.some((cell) => String(cell).toLowerCase().includes(wanted)));
    for (const row of shown.slice(0, 300)) {
      const line = make("tr", body);
      row.forEach((cell, index) => make("td", line, format(cell, chart.columns[index][1]),
        typeof cell === "string" ? { class: "text" } : {}));
    }
  }
  chart.columns.forEach(([name], index) => {
    make("th", head, name).addEventListener("click", () => {
      up = !up;
      const sign = up ? 1 : -1;
      rows.sort((a, b) => {
        const [p, q] = [a[index], b[index]];
        if (p === q) return 0;
        if (p === null) return 1;
        if (q === null) return -1;
        return (p < q ? -1 : 1) * sign;
      });
      fill();
    });
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
    make("span", card, name);
  }
}
const kinds = { lines, bars, gantt, table };
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
