// The forms of the page: a limit is tried before it is applied, and what cannot be taken back is confirmed.

import { count, share } from "./format.js";

const toast = document.getElementById("toast");
const WAIT_MS = 180;
let toastTimer = 0;

export function say(text, isError = false) {
  toast.textContent = text;
  toast.dataset.kind = isError ? "error" : "done";
  toast.classList.add("shown");
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => toast.classList.remove("shown"), isError || text.length > 80 ? 9000 : 5000);
}

// Sends a form; returns whether that was done.
export async function send(action, fields) {
  const headers = { "x-limits-form": "yes", accept: "application/json" };
  try {
    const answer = await fetch(action, { method: "POST", headers, body: new URLSearchParams(fields), credentials: "same-origin" });
    const { done, error } = await answer.json();
    say(done ?? error, !answer.ok);
    return answer.ok;
  } catch {
    say("The server does not answer.", true);
    return false;
  }
}

// Opens a dialog about something; returns the value of the button that closed it, "" for none.
function ask(dialog, what) {
  dialog.querySelector(".what").textContent = what;
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue), { once: true }));
}

// A limit near another one, from a tenth of it to ten times that, with two digits that count.
export function limitAt(base, position) {
  const exact = base * 10 ** (position / 100);
  const unit = 10 ** Math.max(Math.floor(Math.log10(exact)) - 1, 0);
  return Math.max(1, Math.round(exact / unit) * unit);
}

const NUMBER = /^\s*[\d_]+(\.\d+)?/;
const baseOf = (quota) => Number((quota.match(NUMBER) ?? ["100"])[0].replaceAll("_", ""));

export class RuleEditor {
  constructor(form, rule) {
    this.form = form;
    this.rule = rule;
    this.input = form.elements.quota;
    this.slider = form.querySelector("input[type=range]");
    this.whatIf = form.querySelector(".what-if");
    this.timer = 0;
    this.reset();
    this.slider.addEventListener("input", () => this.slide());
    this.input.addEventListener("input", () => this.ask());
    this.apply = form.querySelector("button[value=set]");
    form.addEventListener("submit", (event) => this.submit(event));
  }

  get current() {
    const override = this.rule.override;
    return override && !override.word ? override.quota : this.rule.quotas || "100/minute";
  }

  // New figures; a limit that somebody is about to set stays.
  update(rule) {
    const before = this.current;
    this.rule = rule;
    if (before !== this.current && this.input.value === before) this.reset();
    const undo = this.form.querySelector(".unset");
    undo.hidden = !rule.override;
    const label = rule.quotas ? `Back to ${rule.quotas}` : "Back to what the program says";
    if (undo.textContent !== label) undo.textContent = label;
  }

  reset() {
    this.base = this.current;
    this.input.value = this.base;
    this.slider.value = 0;
    this.slider.setAttribute("aria-valuetext", this.base);
  }

  slide() {
    const quota = this.base.replace(NUMBER, String(limitAt(baseOf(this.base), Number(this.slider.value))));
    this.input.value = this.slider.value === "0" ? this.base : quota;
    this.slider.setAttribute("aria-valuetext", this.input.value);
    this.ask();
  }

  ask() {
    clearTimeout(this.timer);
    this.apply.disabled = false; // it is tried before it is applied
    this.timer = setTimeout(() => this.estimate(), WAIT_MS);
  }

  // Tries the limit that is written; returns whether it is one. Apply waits for that.
  async estimate() {
    clearTimeout(this.timer);
    const quota = this.input.value;
    const answer = await fetch(`what-if?${new URLSearchParams({ rule: this.rule.name, quota })}`).catch(() => null);
    if (quota !== this.input.value) return false;
    const found = answer && (await answer.json().catch(() => null));
    if (!found) this.tell("The server does not answer.");
    else if (found.error) this.tell(found.error.split("\n")[0], "error");
    else this.explain(quota, found);
    this.apply.disabled = Boolean(found?.error);
    return Boolean(found && !found.error);
  }

  explain(quota, found) {
    if (!found.requests) {
      this.tell("Nothing was recorded in the last hour to try this limit on.");
      return;
    }
    const isAll = found.share >= 1;
    const who = isAll ? `${count(found.clients)} clients` : `${count(found.clients)} recorded clients, ${share(found.share, 1)} of all`;
    const { admitted, refused, shadowed } = this.rule;
    const main = `${quota} would have refused ${share(found.refused, found.requests)} of the last hour's requests`;
    const detail = `${count(found.refused)} of ${count(found.requests)}, from ${count(found.refused_clients)} of ${who}`;
    const fact = `In fact it was ${share(refused + shadowed, admitted + refused + shadowed)}.`;
    this.tell(`${main}: ${detail}. ${fact}`, found.refused ? "refuses" : "passes");
  }

  tell(text, kind = "") {
    this.whatIf.textContent = text;
    this.whatIf.dataset.kind = kind;
  }

  async submit(event) {
    event.preventDefault();
    const name = this.rule.name;
    const chosen = event.submitter?.value ?? "set";
    if (chosen === "unset") {
      if (await send("unset", { rule: name })) this.reset();
      return;
    }
    if (chosen === "off") {
      if (!(await ask(document.getElementById("switch-off"), name))) return;
    }
    if (chosen === "set" && !(await this.estimate())) return;
    const quota = chosen === "set" ? this.input.value : chosen;
    await send("set", { rule: name, quota, for: this.form.elements.for.value });
  }
}

// Asks what to do with a key, and does it; the fields name it, and the text is how the page calls it.
// Block is off where the rule has no penalty, which looks for blocks.
export async function changeKey(fields, shown, hasPenalty) {
  const dialog = document.getElementById("change-key");
  dialog.querySelector("button[value=block]").disabled = !hasPenalty;
  dialog.querySelector("#no-block").hidden = hasPenalty;
  const action = await ask(dialog, shown);
  if (action) await send(action, { ...fields, for: dialog.querySelector("select").value });
}
