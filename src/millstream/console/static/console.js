"use strict";
// Every page works without this file. It adds live numbers, charts, keys and the dark theme.

const isLive = document.body.dataset.live === "on";
const stateText = document.getElementById("live-state");

// -- live numbers: the same page is fetched again, and only what changed is replaced -------

let isRefreshing = false;
// Another page was requested, perhaps by a form that deletes what this one shows.
let isLeaving = false;
addEventListener("beforeunload", () => { isLeaving = true; });
async function refresh() {
  if (isRefreshing || isLeaving || document.hidden || !document.querySelector("[data-value], [data-region]")) return;
  // Someone who selects text or uses a control inside a region is not disturbed.
  if (String(getSelection()).length) return;
  isRefreshing = true;
  try {
    const answer = await fetch(location.href);
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const name of ["value", "region"]) {
      for (const element of document.querySelectorAll(`[data-${name}]`)) {
        const key = CSS.escape(element.getAttribute(`data-${name}`));
        const other = fresh.querySelector(`[data-${name}="${key}"]`);
        if (other && !element.contains(document.activeElement) && element.innerHTML !== other.innerHTML) {
          element.replaceChildren(...other.childNodes);
        }
      }
    }
    // Charts whose points come with the page.
    const drawn = charts.filter((chart) => chart.element.dataset.points);
    const others = fresh.querySelectorAll(".plot[data-points]");
    drawn.forEach((chart, index) => {
      const points = others[index]?.dataset.points;
      if (!points || points === chart.element.dataset.points) return;
      chart.element.dataset.points = points;
      chart.data = JSON.parse(points);
      if (chart.data.length === chart.plot.series.length) chart.plot.setData(chart.data);
    });
  } finally {
    isRefreshing = false;
  }
}

// -- charts --------------------------------------------------------------------------------

const UNITS = {
  count: (v) => (v >= 1e6 ? (v / 1e6).toFixed(1) + " M" : v >= 1e4 ? (v / 1e3).toFixed(0) + " k" : String(Math.round(v * 10) / 10)),
  bytes: (v) => (v >= 1e9 ? (v / 1e9).toFixed(1) + " GB" : v >= 1e6 ? (v / 1e6).toFixed(1) + " MB" : v >= 1e3 ? (v / 1e3).toFixed(0) + " KB" : v + " B"),
};
UNITS.rate = UNITS.count;
const charts = [];

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function draw(chart) {
  const { element, data } = chart;
  const labels = element.dataset.labels.split(",");
  const format = UNITS[element.dataset.unit] || UNITS.count;
  const axis = { stroke: color("--dim"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
  chart.plot?.destroy();
  chart.plot = new uPlot({
    width: element.clientWidth || 600, height: 165, cursor: { y: false }, legend: { live: false },
    scales: { y: { range: (u, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
    padding: [10, 12, 0, 0],
    axes: [{ ...axis, size: 30, values: (u, ticks) => ticks.map((t) => new Date(t * 1000).toISOString().slice(11, ticks.length > 1 && ticks[1] - ticks[0] < 60 ? 19 : 16)), space: 70 }, { ...axis, size: 56, values: (u, ticks) => ticks.map(format) }],
    series: [{}, ...labels.map((label, index) => ({ label, stroke: color(`--series-${index + 1}`), width: 1.6, fill: index ? undefined : color("--series-1") + "22", points: { show: false }, spanGaps: true }))],
  }, data, element);
}

async function update(chart) {
  const names = chart.element.dataset.series;
  const since = chart.data[0].length ? Math.round(chart.data[0].at(-1) * 1000) : 0;
  const answer = await fetch(`/api/v1/history?series=${encodeURIComponent(names)}&since_ms=${since}`);
  if (!answer.ok) return;
  const found = await answer.json();
  const columns = [found.times, ...names.split(",").map((name) => found.series[name] || [])];
  chart.data = chart.data.map((old, index) => [...old, ...columns[index]].slice(-600));
  if (chart.plot) chart.plot.setData(chart.data); else draw(chart);
}

function startCharts() {
  for (const element of document.querySelectorAll(".plot[data-series]")) {
    const chart = { element, data: [[], ...element.dataset.series.split(",").map(() => [])], plot: null };
    charts.push(chart);
    update(chart);
  }
  for (const element of document.querySelectorAll(".plot[data-points]")) {
    const chart = { element, data: JSON.parse(element.dataset.points), plot: null };
    charts.push(chart);
    draw(chart);
  }
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth !== width) { width = innerWidth; charts.forEach(draw); }
  });
}

// -- the stream ----------------------------------------------------------------------------

let stream = null;
function listen(query) {
  stream?.close();
  stream = new EventSource("/live" + query);
  stream.addEventListener("hello", () => { stateText.textContent = "live"; stateText.classList.add("on"); });
  stream.addEventListener("sample", () => {
    refresh();
    charts.filter((chart) => chart.element.dataset.series).forEach(update);
  });
  stream.addEventListener("record", (message) => addRecord(JSON.parse(message.data)));
  stream.onerror = () => { stateText.textContent = "reconnecting"; stateText.classList.remove("on"); };
}
addEventListener("pagehide", () => stream?.close());
addEventListener("pageshow", (event) => {
  isLeaving = false;
  if (event.persisted && isLive) listen("");
});

// -- following a topic ---------------------------------------------------------------------

const tail = document.getElementById("tail");
const ROWS_MAX = 200;

function cell(row, text, kind) {
  const made = row.insertCell();
  made.className = kind || "";
  made.textContent = text;
  return made;
}

function shown(made, value) {
  const inside = document.createElement("span");
  const isNothing = value.kind === "null" || value.kind === "empty";
  inside.className = isNothing ? "null" : "value";
  inside.textContent = isNothing ? value.kind : value.text + (value.is_cut ? "…" : "");
  made.append(inside);
}

function addRecord(record) {
  const body = document.querySelector("#records tbody");
  if (!body || tail?.getAttribute("aria-pressed") !== "true") return;
  body.querySelector(".nothing")?.remove();
  const row = body.insertRow(0);
  row.className = "new";
  row.dataset.testid = "record-row";
  cell(row, record.partition, "num");
  const link = document.createElement("a");
  link.href = `/topics/${encodeURIComponent(tail.dataset.topic)}/records/${record.partition}/${record.offset}`;
  link.textContent = record.offset;
  cell(row, "", "num").append(link);
  cell(row, new Date(record.timestamp_ms).toISOString().replace("T", " ").replace("Z", ""), "time");
  shown(cell(row, "", "cell key"), record.key);
  shown(cell(row, "", "cell"), record.value);
  cell(row, `${record.key.size_bytes} + ${record.value.size_bytes} B`, "num dim");
  const headers = cell(row, "", "cell headers");
  for (const header of record.headers) {
    const made = document.createElement("span");
    made.className = "header";
    made.textContent = `${header.name}: ${header.value.text}`;
    headers.append(made);
  }
  while (body.rows.length > ROWS_MAX) body.deleteRow(-1);
}

tail?.addEventListener("click", () => {
  const isOn = tail.getAttribute("aria-pressed") !== "true";
  tail.setAttribute("aria-pressed", String(isOn));
  listen(isOn ? `?topic=${encodeURIComponent(tail.dataset.topic)}&as=${tail.dataset.as}` : "");
});

// -- the batch inspector: bytes and fields point at each other ------------------------------

for (const element of document.querySelectorAll("[data-field]")) {
  const mark = (isOn) => {
    for (const other of document.querySelectorAll(`[data-field="${CSS.escape(element.dataset.field)}"]`)) other.classList.toggle("hot", isOn);
  };
  element.addEventListener("mouseenter", () => mark(true));
  element.addEventListener("mouseleave", () => mark(false));
  element.addEventListener("focus", () => mark(true));
  element.addEventListener("blur", () => mark(false));
}

// Widths that depend on data: the content policy allows no inline style attributes.
for (const element of document.querySelectorAll("[data-grow]")) element.style.flexGrow = element.dataset.grow;

// -- keys ----------------------------------------------------------------------------------

const GOTO = { o: "/", t: "/topics", g: "/groups", n: "/nodes", c: "/clients", p: "/pipeline" };
let isGoing = false;
let selected = -1;
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (isGoing && GOTO[event.key]) { location.href = GOTO[event.key]; return; }
  isGoing = event.key === "g";
  if (event.key === "/") {
    const search = document.querySelector("[data-search]");
    if (search) { event.preventDefault(); search.focus(); search.select(); }
  }
  const rows = [...document.querySelectorAll("table.rows tbody tr")];
  if ((event.key === "j" || event.key === "k") && rows.length) {
    selected = Math.min(Math.max(selected + (event.key === "j" ? 1 : -1), 0), rows.length - 1);
    rows.forEach((row, index) => row.classList.toggle("selected", index === selected));
    rows[selected].scrollIntoView({ block: "nearest" });
    rows[selected].querySelector("a")?.focus();
  }
});

document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
  charts.forEach(draw);
});

startCharts();
if (isLive) listen("");
