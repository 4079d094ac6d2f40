// Shows the state of all limits, and asks for it again and again.

import { Chart, spark } from "./charts.js";
import { RuleEditor, changeKey } from "./editor.js";
import { RESULTS, count, duration, element, minute, moment, setChildren, setText, share, sum } from "./format.js";

const $ = (id) => document.getElementById(id);
const chart = new Chart($("chart"), $("chart-legend"));
const shown = new Map();
const FEW_KEYS = 6;
const FEW_ROWS = 20;
let allKeys = false;
let found = null;
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
  showBlocks();
  showOutbound();
  showChanges();
  showProcesses();
}

function showStatus() {
  const living = state.processes.filter((process) => state.now - process.latest < 120).length;
  status("live", living ? `Live, ${living === 1 ? "1 process" : `${living} processes`}` : "Live, no requests");
  const store = state.store.kind === "memory" ? "in the memory of this process" : `on ${state.store.name}`;
  setText($("where"), `${location.host}${location.pathname} ${store}`);
}

function showTotals() {
  const total = (name) => sum(state.minutes.map((numbers) => numbers[RESULTS.indexOf(name)]));
  const decided = total("admitted") + total("refused") + total("shadowed");
  const latest = state.seconds.slice(-12, -2);
  const rate = sum(latest.map((row) => row[1] + row[2] + row[3])) / Math.max(latest.length, 1);
  const { kind, takes, p50, p99 } = state.store;
  const isMemory = kind === "memory";
  const waits = takes ? [duration(p99), `99 % of takes, half within ${duration(p50)}`] : ["–", isMemory ? "of this process alone" : "no takes yet"];
  const tiles = [
    ["Admitted", count(total("admitted")), `${rate < 10 ? rate.toFixed(1) : count(rate)} requests/s now`, "admitted"],
    ["Refused", count(total("refused")), share(total("refused"), decided), "refused"],
    ["Shadowed", count(total("shadowed")), "would be refused", "shadowed"],
    ["Degraded", count(total("degraded")), "without the store", "degraded"],
    ["Errors in your functions", count(total("failed")), "for keys, quotas, costs", "failed"],
    [isMemory ? "Memory" : "Store", ...waits, "store"],
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
  const radio = document.querySelector("input[name=span][value=now]");
  radio.disabled = Boolean(select.value);
  if (radio.disabled && radio.checked) document.querySelector("input[name=span][value=quarter]").checked = true;
  const span = document.querySelector("input[name=span]:checked").value;
  const of = state.rules.find((rule) => rule.name === select.value) ?? state;
  const minutes = timed(of.minutes, 60);
  const rows = { now: state.seconds, quarter: minutes.slice(-15), hour: minutes, day: timed(of.hours, 3600) }[span];
  const changes = state.history.filter((change) => !select.value || change.name === select.value);
  chart.show(rows, span, changes.map((change) => [change.at, `${change.name}: ${whatChanged(change)}${change.by ? `, ${change.by}` : ""}`]));
}

// Counts, each with the time at which its minute or hour began.
function timed(counts, step) {
  const latest = Math.floor(state.now / step);
  return counts.map((numbers, place) => [(latest + 1 - counts.length + place) * step, ...numbers]);
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
  setText($("no-rules"), `No request was counted in the last hour. Is this the store of your limits? It is ${state.store.name}.`);
}

function showRule(item, rule) {
  const override = rule.override;
  setText(item.querySelector(".rule-name"), rule.name);
  const limit = override ? { shadow: "shadow mode", off: "off" }[override.word] ?? override.quota : rule.quotas || "set by a function";
  const badge = override && element("span", { className: "badge" }, override.until ? `changed, ${duration(override.until - state.now)} left` : "changed");
  setChildren(item.querySelector(".rule-limit"), badge ? [limit, " ", badge] : [limit]);
  const paths = spark(rule.minutes);
  item.querySelector(".spark-admitted").setAttribute("d", paths.all);
  item.querySelector(".spark-refused").setAttribute("d", paths.refused);
  const decided = rule.admitted + rule.refused + rule.shadowed;
  const parts = [element("span", {}, element("b", {}, count(rule.admitted)), " admitted")];
  const first = timed(rule.minutes, 60).find((row) => row[2] > 0);
  if (rule.held) parts.push(element("span", {}, element("b", {}, count(rule.held)), " in flight"));
  const texts = { failed: "errors in your functions" };
  for (const name of RESULTS.slice(1)) {
    const note = name === "refused" && first ? ` (${share(rule.refused, decided)}, since ${minute(first[0])})` : "";
    if (rule[name] || name === "refused") parts.push(element("span", { className: rule[name] ? name : "none" }, element("b", {}, count(rule[name])), ` ${texts[name] ?? name}${note}`));
  }
  setChildren(item.querySelector(".rule-counts"), parts);
}

function showKeys() {
  const some = found ?? (allKeys ? state.keys : state.keys.slice(0, FEW_KEYS));
  $("all-keys").hidden = Boolean(found) || state.keys.length <= FEW_KEYS;
  setText($("all-keys"), allKeys ? `Show ${FEW_KEYS} of them` : `Show all ${state.keys.length}`);
  $("all-keys").setAttribute("aria-expanded", String(allKeys));
  const rows = some.map((key) => {
    const button = element("button", { type: "button", className: "small", "data-id": key.id, "data-rule": key.rule, "aria-label": `Actions for ${nameOf(key)} of ${key.rule}` }, "Actions");
    return element("tr", {},
      keyCell(key, key.since ? `${key.rule}, ${isShadow(key.rule) ? "would be refused" : "refused"} since ${minute(key.since)}` : key.rule),
      element("td", { className: "number" }, count(key.requests)),
      element("td", { className: key.refused ? "number refused" : "number none" }, count(key.refused)),
      element("td", { className: "actions" }, button));
  });
  setChildren($("keys").tBodies[0], rows);
  $("keys").hidden = !rows.length;
  $("no-keys").hidden = rows.length > 0;
  setText($("no-keys"), found ? "No such key has sent a request in the last hour." : "Nobody has sent a request yet.");
  const select = $("key-form").elements.rule;
  const names = state.rules.map((rule) => rule.name);
  if (names.join("\n") !== [...select.options].map((option) => option.value).join("\n")) select.replaceChildren(...names.map((name) => new Option(name, name)));
}

for (const table of [$("keys"), $("blocks")]) table.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  const row = button?.closest("tr");
  if (row) change({ id: button.dataset.id }, row.querySelector(".key").textContent, button.dataset.rule);
});

$("search").addEventListener("input", search);

// The keys of the last hour that contain what is typed.
async function search() {
  const text = $("search").value.trim();
  const answer = text && (await fetch(`keys?${new URLSearchParams({ search: text })}`).catch(() => null));
  const keys = (answer && answer.ok && (await answer.json().catch(() => null))) || null;
  if (text !== $("search").value.trim()) return;
  found = keys;
  if (state) showKeys();
}

const isShadow = (name) => state.rules.some((rule) => rule.name === name && rule.shadowed && !rule.refused);
const nameOf = (key) => key.key ?? key.id;

// A key and what stands below it; a key that is not shown has a stand-in, which is the same everywhere.
function keyCell(key, text) {
  const isHidden = key.key === null;
  const name = element("span", { className: isHidden ? "key hashed" : "key", title: isHidden ? "A stand-in for the key, which is not shown" : "" }, nameOf(key));
  return element("th", { scope: "row" }, name, element("span", { className: "key-rule" }, text));
}

function change(fields, name, rule) {
  const hasPenalty = state.rules.some((each) => each.name === rule && each.has_penalty);
  return changeKey(fields, `${name} of ${rule}`, hasPenalty);
}

function showBlocks() {
  const rows = state.blocks.map((block) => element("tr", {},
    keyCell(block, block.rule),
    element("td", { className: "number" }, duration(block.left)),
    element("td", { className: "actions" }, element("button", { type: "button", className: "small", "data-id": block.id, "data-rule": block.rule, "aria-label": `Actions for ${nameOf(block)} of ${block.rule}` }, "Actions"))));
  setChildren($("blocks").tBodies[0], rows);
  $("blocks").hidden = !rows.length;
  $("no-blocks").hidden = rows.length > 0;
}

$("all-keys").addEventListener("click", () => {
  allKeys = !allKeys;
  showKeys();
});

$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const { rule, key } = event.target.elements;
  change({ rule: rule.value, key: key.value }, key.value, rule.value);
});

function showOutbound() {
  const number = (value) => element("td", { className: "number" }, value === null ? "–" : count(value));
  const queues = new Map();
  for (const { name, waiting } of state.queues) queues.set(name, (queues.get(name) ?? 0) + waiting);
  setChildren($("queues").tBodies[0], [...queues].slice(0, FEW_ROWS).map(([name, waiting]) => element("tr", {}, element("th", { scope: "row" }, name), number(waiting))));
  const learned = state.learned.slice(0, FEW_ROWS).map((row) => element("tr", {},
    element("th", { scope: "row" }, element("span", { className: "key" }, row.host), element("span", { className: "key-rule" }, row.paused_for > 0 ? `${row.name}, paused for ${duration(row.paused_for)}` : row.name)),
    number(row.remaining), number(row.limit), number(row.waiting)));
  setChildren($("learned").tBodies[0], learned);
  $("queues").hidden = !queues.size;
  $("learned").hidden = !learned.length;
  const more = Math.max(queues.size - FEW_ROWS, 0) + Math.max(state.learned.length - FEW_ROWS, 0);
  $("more-outbound").hidden = !more;
  setText($("more-outbound"), `And ${count(more)} more.`);
  $("no-outbound").hidden = queues.size + learned.length > 0;
}

// What somebody has done to a limit, or to a key of it.
function whatChanged(change) {
  const text = (override) => (override ? { shadow: "shadow mode" }[override.word] ?? override.quota : "what the program says");
  return change.action ? `${nameOf(change.key)} ${change.action}` : `${text(change.before)} → ${text(change.after)}`;
}

function showChanges() {
  const items = state.history.map((change) => element("li", {},
    element("span", { className: "change" }, element("b", {}, change.name), ` ${whatChanged(change)}`),
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
