// The large chart, drawn by uPlot, and the small ones of the rules.

import { RESULTS, ZONE, count, element, minute, second, sum } from "./format.js";

const SHOWN = [0, 1, 2]; // admitted, refused and shadowed, stacked in this order
// The ranges of time: their names, and the seconds and the unit of a bar.
const SPANS = {
  now: ["2 minutes", 1, "second"],
  quarter: ["15 minutes", 60, "minute"],
  hour: ["hour", 60, "minute"],
  day: ["24 hours", 3600, "hour"],
};
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export class Chart {
  constructor(place, legend) {
    this.place = place;
    this.legend = legend;
    this.key = "";
    this.times = [];
    this.rows = [];
    this.changes = [];
    new ResizeObserver(() => this.resize()).observe(place);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.build());
  }

  // rows: [time, admitted, refused, shadowed, ...] each; span: one of SPANS; changes: [time, text] each.
  show(rows, span, changes) {
    const key = JSON.stringify([rows, span, changes]);
    if (key === this.key) return;
    const isNew = span !== this.span || !this.plot;
    Object.assign(this, { key, span, rows, changes, times: rows.map((row) => row[0]) });
    if (isNew) this.build();
    else this.plot.setData(this.stacked());
    this.describe();
    this.point(null);
  }

  stacked() {
    const of = (last) => this.rows.map((row) => sum(SHOWN.slice(0, last + 1).map((each) => row[each + 1])));
    return [this.times, ...[...SHOWN].reverse().map(of)];
  }

  describe() {
    const totals = RESULTS.map((_, each) => sum(this.rows.map((row) => row[each + 1])));
    const span = `the last ${SPANS[this.span][0]}, by ${SPANS[this.span][2]}`;
    const parts = SHOWN.map((each) => `${count(totals[each])} ${RESULTS[each]}`);
    this.place.setAttribute("aria-label", `Requests in ${span}: ${parts.join(", ")}`);
  }

  // The numbers of one time, or the totals of all.
  point(index) {
    const row = index === null ? null : this.rows[index];
    const numbers = RESULTS.map((_, each) => (row ? row[each + 1] : sum(this.rows.map((one) => one[each + 1]))));
    const when = row ? this.label(row[0]) : `Last ${SPANS[this.span][0]}`;
    const seen = SHOWN.filter((each) => each < 2 || numbers[each]);
    const items = seen.map((each) => element("span", { className: `legend-item ${RESULTS[each]}` }, `${count(numbers[each])} ${RESULTS[each]}`));
    const changes = this.changes.filter(([at]) => row && at >= row[0] && at < row[0] + this.step);
    for (const [, text] of changes) items.push(element("span", { className: "legend-item changed" }, text));
    this.legend.replaceChildren(element("span", { className: "legend-time" }, when), ...items);
  }

  build() {
    if (this.plot) this.plot.destroy();
    if (!this.rows.length) return;
    const axis = { stroke: style("--muted"), grid: { stroke: style("--line"), width: 1 }, ticks: { show: false }, font: `12px ${style("--font")}` };
    const bars = uPlot.paths.bars({ size: [0.8, 44], radius: 0.15, gap: 0 });
    const colours = [...SHOWN].reverse().map((each) => style(`--${RESULTS[each]}`));
    const labels = { labelSize: 18, labelGap: 0, labelFont: axis.font };
    const options = {
      ...this.size(),
      padding: [12, 24, 0, 0],
      legend: { show: false },
      cursor: { y: false, points: { show: false }, drag: { x: false, y: false } },
      scales: { x: { time: true, range: (plot, low, high) => [low - 30 * (this.step / 60), high + 30 * (this.step / 60)] }, y: { range: (plot, low, high) => [0, Math.max(4, high * 1.05)] } },
      axes: [
        { ...axis, ...labels, label: `Time (${ZONE})`, size: 26, grid: { show: false }, values: (plot, times) => times.map((at) => this.label(at)), space: 80 },
        { ...axis, ...labels, label: `Requests per ${SPANS[this.span][2]}`, size: 44, values: (plot, numbers) => numbers.map((number) => (Number.isInteger(number) ? short(number) : "")) },
      ],
      series: [{}, ...colours.map((fill) => ({ fill, stroke: fill, width: 0, paths: bars, points: { show: false } }))],
      hooks: { setCursor: [(plot) => this.point(plot.cursor.idx ?? null)], draw: [(plot) => this.mark(plot)] },
    };
    this.plot = new uPlot(options, this.stacked(), this.place);
  }

  // A dashed line at the time of each change.
  mark(plot) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.strokeStyle = style("--accent");
    ctx.lineWidth = 1.5 * devicePixelRatio;
    ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
    for (const [at] of this.changes) {
      const x = plot.valToPos(at - this.step / 2, "x", true);
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  }

  label(at) {
    return this.step === 1 ? second(at) : minute(at);
  }

  get step() {
    return SPANS[this.span][1];
  }

  size() {
    return { width: Math.max(this.place.clientWidth, 200), height: this.place.clientHeight || 220 };
  }

  resize() {
    if (this.plot) this.plot.setSize(this.size());
  }
}

const short = (number) => (number >= 1e6 ? `${number / 1e6} M` : number >= 1e4 ? `${number / 1e3} k` : count(number));

// The paths of a small chart: what was admitted as an area, what was refused as one in front of it.
export function spark(minutes, width = 120, height = 28) {
  const most = Math.max(...minutes.map((row) => row[0] + row[1] + row[2]), 1);
  const x = (place) => ((place * width) / (minutes.length - 1)).toFixed(1);
  const y = (value) => (height - (value / most) * (height - 2)).toFixed(1);
  const area = (values) => `M0 ${height} ${values.map((value, place) => `L${x(place)} ${y(value)}`).join(" ")} L${width} ${height} Z`;
  const all = minutes.map((row) => row[0] + row[1] + row[2]);
  const refused = minutes.map((row) => row[1] + row[2]);
  return { all: area(all), refused: refused.some(Boolean) ? area(refused) : "" };
}
