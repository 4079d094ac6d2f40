// Shows the state of all limits, and asks for it again and again.

import { Chart, spark } from "./charts.js";
import { RuleEditor, changeKey } from "./editor.js";
import { RESULTS, count, duration, element, minute, moment, setChildren, setText, share, sum } from "./format.js";

const $ = (id) => document.getElementById(id);
const chart = new Chart($("chart"), $("chart-legend"));
const shown = new Map();
const FEW_KEYS = 6;
let allKeys = false;
let state = null;
const EVERY_MS = 700;
const PATIENT_MS = 3000;
let poll = 0;

// The state is asked for again and again, as long as somebody can see the page.
async function ask() {
  clearTimeout(poll);
  const late = setTimeout(() => status("error", "The server does not answer"), PATIENT_MS);
  const answer = await fetch("state").catch(() => null);
  const read = await answer?.json().catch(() => null);
  clearTimeout(late);
  if (answer?.ok && read) show(read);
  else if (answer?.status === 403) status("error", "You may not see this page any more");
  else status("error", read?.error || (answer ? `The server answers ${answer.status}` : "The server does not answer"));
  clearTimeout(poll);
  if (!document.hidden) poll = setTimeout(ask, EVERY_MS);
}

document.addEventListener("visibilitychange", () => document.hidden || ask());

function status(kind, text) {
  $("status").dataset.kind = kind;
  setText($("status"), text);
}

function show(next) {
  state = next;
  showStatus();
  showTotals();
  showChart();
  showRules();
  showKeys();
  showOutbound();
  showChanges();
  showProcesses();
}

function showStatus() {
  const living = state.processes.filter((process) => state.now - process.latest < 120).length;
  status("live", living ? `Live, ${living === 1 ? "1 process" : `${living} processes`}` : "Live, no requests");
}

function showTotals() {
  const total = (name) => sum(state.rules.map((rule) => rule[name]));
  const decided = total("admitted") + total("refused") + total("shadowed");
  const latest = state.seconds.slice(-11, -1);
  const rate = sum(latest.map((row) => row[1] + row[2] + row[3])) / Math.max(latest.length, 1);
  const { kind, takes, p50, p99 } = state.store;
  const waits = takes ? [duration(p99), `99 % of takes, half within ${duration(p50)}`] : ["–", kind === "memory" ? "in this process" : "no takes yet"];
  const tiles = [
    ["Admitted", count(total("admitted")), `${rate < 10 ? rate.toFixed(1) : count(rate)} requests/s now`, "admitted"],
    ["Refused", count(total("refused")), share(total("refused"), decided), "refused"],
    ["Shadowed", count(total("shadowed")), "would be refused", "shadowed"],
    ["Degraded", count(total("degraded")), "without the store", "degraded"],
    ["Failed", count(total("failed")), "key or cost functions", "failed"],
    ["Store", ...waits, "store"],
  ];
  setChildren($("totals"), tiles.map(tile));
}

function tile([name, value, note, kind]) {
  const isZero = value === "0" && kind !== "admitted";
  return element("div", { className: `tile ${kind}${isZero ? " zero" : ""}` }, element("dt", {}, name), element("dd", { className: "value" }, value), element("dd", { className: "note" }, note));
}

function showChart() {
  const select = $("chart-rule");
  const names = ["", ...state.rules.map((rule) => rule.name)];
  if (names.join("\n") !== [...select.options].map((option) => option.value).join("\n")) {
    const chosen = select.value;
    select.replaceChildren(...names.map((name) => new Option(name || "All rules", name)));
    select.value = names.includes(chosen) ? chosen : "";
  }
  const span = document.querySelector("input[name=span]:checked").value;
  const radio = document.querySelector("input[name=span][value=now]");
  radio.disabled = Boolean(select.value);
  const isNow = span === "now" && !select.value;
  chart.show(isNow ? state.seconds : perMinute(select.value), isNow ? "now" : "hour");
}

function perMinute(name) {
  const rules = state.rules.filter((rule) => !name || rule.name === name);
  const latest = Math.floor(state.now / 60);
  return Array.from({ length: 60 }, (_, place) => [
    (latest - 59 + place) * 60,
    ...RESULTS.map((_, each) => sum(rules.map((rule) => rule.minutes[place][each]))),
  ]);
}

function showRules() {
  const list = $("rules");
  for (const rule of state.rules) {
    if (!shown.has(rule.name)) {
      const item = $("rule").content.firstElementChild.cloneNode(true);
      shown.set(rule.name, { item, editor: new RuleEditor(item.querySelector("form"), rule) });
      item.querySelector("details").addEventListener("toggle", (event) => event.target.open && shown.get(rule.name).editor.ask());
      list.append(item);
    }
    const { item, editor } = shown.get(rule.name);
    editor.update(rule);
    showRule(item, rule);
  }
  for (const [name, { item }] of shown) {
    if (!state.rules.some((rule) => rule.name === name)) {
      item.remove();
      shown.delete(name);
    }
  }
  $("no-rules").hidden = state.rules.length > 0;
}

function showRule(item, rule) {
  const override = rule.override;
  setText(item.querySelector(".rule-name"), rule.name);
  const limit = override ? { shadow: "counted only", off: "off" }[override.word] ?? override.quota : rule.quotas || "set by a function";
  const badge = override && element("span", { className: "badge" }, override.until ? `changed, ${duration(override.until - state.now)} left` : "changed");
  setChildren(item.querySelector(".rule-limit"), badge ? [limit, " ", badge] : [limit]);
  const paths = spark(rule.minutes);
  item.querySelector(".spark-admitted").setAttribute("d", paths.all);
  item.querySelector(".spark-refused").setAttribute("d", paths.refused);
  const decided = rule.admitted + rule.refused + rule.shadowed;
  const parts = [element("span", {}, element("b", {}, count(rule.admitted)), " admitted")];
  for (const name of RESULTS.slice(1)) {
    const note = name === "refused" && rule.refused ? ` (${share(rule.refused, decided)})` : "";
    if (rule[name] || name === "refused") parts.push(element("span", { className: rule[name] ? name : "none" }, element("b", {}, count(rule[name])), ` ${name}${note}`));
  }
  setChildren(item.querySelector(".rule-counts"), parts);
}

function showKeys() {
  const some = allKeys ? state.keys : state.keys.slice(0, FEW_KEYS);
  $("all-keys").hidden = state.keys.length <= FEW_KEYS;
  setText($("all-keys"), allKeys ? `Show ${FEW_KEYS} of them` : `Show all ${state.keys.length}`);
  $("all-keys").setAttribute("aria-expanded", String(allKeys));
  const rows = some.map((key) => {
    const name = key.key ?? key.id;
    const button = element("button", { type: "button", className: "small", "data-id": key.id, "aria-label": `Change ${name} of ${key.rule}` }, "Change");
    const shownName = element("span", { className: key.key === null ? "key hashed" : "key", title: key.key === null ? "A stand-in for the key, which is not shown" : "" }, name);
    return element("tr", {},
      element("th", { scope: "row" }, shownName, element("span", { className: "key-rule" }, key.rule)),
      element("td", { className: "number" }, count(key.requests)),
      element("td", { className: key.refused ? "number refused" : "number none" }, count(key.refused)),
      element("td", { className: "actions" }, button));
  });
  setChildren($("keys").tBodies[0], rows);
  $("keys").hidden = !rows.length;
  $("no-keys").hidden = rows.length > 0;
  const select = $("key-form").elements.rule;
  const names = state.rules.map((rule) => rule.name);
  if (names.join("\n") !== [...select.options].map((option) => option.value).join("\n")) select.replaceChildren(...names.map((name) => new Option(name, name)));
}

$("keys").addEventListener("click", (event) => {
  const button = event.target.closest("button");
  const row = button?.closest("tr");
  if (row) changeKey({ id: button.dataset.id }, `${row.querySelector(".key").textContent} of ${row.querySelector(".key-rule").textContent}`);
});

$("all-keys").addEventListener("click", () => {
  allKeys = !allKeys;
  showKeys();
});

$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const { rule, key } = event.target.elements;
  changeKey({ rule: rule.value, key: key.value }, `${key.value} of ${rule.value}`);
});

function showOutbound() {
  const number = (value) => element("td", { className: "number" }, value === null ? "–" : count(value));
  const queues = new Map();
  for (const { name, waiting } of state.queues) queues.set(name, (queues.get(name) ?? 0) + waiting);
  setChildren($("queues").tBodies[0], [...queues].map(([name, waiting]) => element("tr", {}, element("th", { scope: "row" }, name), number(waiting))));
  const learned = state.learned.map((row) => element("tr", {},
    element("th", { scope: "row" }, element("span", { className: "key" }, row.host), element("span", { className: "key-rule" }, row.paused_for > 0 ? `${row.name}, paused for ${duration(row.paused_for)}` : row.name)),
    number(row.remaining), number(row.limit), number(row.waiting)));
  setChildren($("learned").tBodies[0], learned);
  $("queues").hidden = !queues.size;
  $("learned").hidden = !learned.length;
  $("no-outbound").hidden = queues.size + learned.length > 0;
}

function showChanges() {
  const text = (override) => (override ? override.quota : "what the program says");
  const items = state.history.map((change) => element("li", {},
    element("span", { className: "change" }, element("b", {}, change.name), ` ${text(change.before)} → ${text(change.after)}`),
    element("span", { className: "muted" }, `${moment(change.at, state.now)}${change.by ? `, ${change.by}` : ""}`)));
  setChildren($("changes"), items);
  $("no-changes").hidden = items.length > 0;
}

function showProcesses() {
  const items = state.processes.map((process) => {
    const isOver = state.now - process.latest > 120;
    const note = isOver ? `quiet since ${minute(process.latest)}` : `since ${moment(process.started, state.now)}`;
    return element("li", { className: isOver ? "over" : "" }, element("span", { className: "key" }, process.name.split(":").slice(0, 2).join(" ")), element("span", { className: "muted" }, note));
  });
  setChildren($("processes"), items);
}

for (const control of [$("chart-rule"), ...document.querySelectorAll("input[name=span]")]) control.addEventListener("change", () => state && showChart());
ask();
