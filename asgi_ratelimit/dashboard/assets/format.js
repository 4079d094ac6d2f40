// Numbers, times and elements as the page shows them.

export const RESULTS = ["admitted", "refused", "shadowed", "degraded", "failed"];

export const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;

const whole = new Intl.NumberFormat();
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const clockWithSeconds = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" });

export const count = (number) => whole.format(Math.round(number));

export function share(part, all) {
  if (!all || !part) return "0 %";
  const percent = (100 * part) / all;
  return percent < 0.1 ? "< 0.1 %" : `${percent.toFixed(percent < 9.95 ? 1 : 0)} %`;
}

export function duration(seconds) {
  if (seconds < 0.001) return `${Math.max(seconds * 1e6, 0).toFixed(0)} µs`;
  if (seconds < 1) return `${(seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
  if (seconds < 90) return `${seconds.toFixed(0)} s`;
  if (seconds < 5400) return `${(seconds / 60).toFixed(0)} min`;
  if (seconds < 172800) return `${(seconds / 3600).toFixed(0)} h`;
  return `${(seconds / 86400).toFixed(0)} days`;
}

export const minute = (at) => clock.format(new Date(at * 1000));
export const second = (at) => clockWithSeconds.format(new Date(at * 1000));
export const moment = (at, now) => (now - at < 43200 ? minute(at) : day.format(new Date(at * 1000)));

export const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);

// An element with properties, attributes (data-... and aria-...) and children, which are elements or text.
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-")) made.setAttribute(name, value);
    else made[name] = value;
  }
  made.append(...children);
  return made;
}

// Replace the content only where it differs: what stays keeps its focus and is not read out again.
export function setText(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

export function setChildren(target, children) {
  const next = element("div", {}, ...children);
  if (target.innerHTML !== next.innerHTML) target.replaceChildren(...next.childNodes);
}
