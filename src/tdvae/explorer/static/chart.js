// Charts of signals: what was seen, what really happened, bands, and the futures of single belief samples.

import { drawMarker, prepareCanvas, sampleColour, shortNumber, themeColour } from "./palette.js";

const MARGIN = { left: 44, right: 14, top: 24, bottom: 26 };
const PAST = 60, LEAST_WIDTH = 75;

// Which part of time and of the values is shown. Both panels of a row, and both models, share it.
export function frameOf(view, length, values, jump) {
  const start = Math.max(0, view.t - PAST), after = Math.max(4, (jump.tail[0]?.length ?? 0) + 2);
  const end = Math.max(view.t + view.dt + after, Math.min(start + LEAST_WIDTH, length));
  let low = Math.min(...values), high = Math.max(...values);
  if (!(high > low)) { low -= 1; high += 1; }
  const room = 0.12 * (high - low);
  return { start, end, low: low - room, high: high + room, length };
}

class Plot {
  constructor(canvas, frame) {
    Object.assign(this, prepareCanvas(canvas), { frame });
    const inner = this.width - MARGIN.left - MARGIN.right, tall = this.height - MARGIN.top - MARGIN.bottom;
    this.x = (t) => MARGIN.left + (inner * (t - frame.start)) / (frame.end - frame.start);
    this.y = (v) => MARGIN.top + (tall * (frame.high - v)) / (frame.high - frame.low);
  }

  axes() {
    const { ctx, frame } = this;
    ctx.strokeStyle = themeColour("grid");
    ctx.fillStyle = themeColour("soft");
    ctx.lineWidth = 1;
    ctx.textAlign = "right";
    ctx.textBaseline = "middle";
    for (const value of ticks(frame.low, frame.high, 5)) {
      this.line([[frame.start, value], [frame.end, value]]);
      ctx.fillText(shortNumber(value), MARGIN.left - 8, this.y(value));
    }
    ctx.textAlign = "center";
    ctx.textBaseline = "alphabetic";
    for (const t of ticks(frame.start, frame.end, 8)) ctx.fillText(String(t), this.x(t), this.height - 6);
  }

  line(points) {
    const { ctx } = this;
    ctx.beginPath();
    for (const [t, v] of points) ctx.lineTo(this.x(t), this.y(v));
    ctx.stroke();
  }

  clip() {
    this.ctx.beginPath();
    this.ctx.rect(MARGIN.left - 6, MARGIN.top - 6, this.width - MARGIN.left - MARGIN.right + 12, this.height - MARGIN.top - MARGIN.bottom + 10);
    this.ctx.clip();
  }

  area(times, low, high, colour) {
    const { ctx } = this;
    ctx.beginPath();
    times.forEach((t, i) => ctx.lineTo(this.x(t), this.y(high[i])));
    for (let i = times.length - 1; i >= 0; i--) ctx.lineTo(this.x(times[i]), this.y(low[i]));
    ctx.closePath();
    ctx.fillStyle = colour;
    ctx.fill();
  }

  moment(t, text, colour, dash, side) {
    const { ctx } = this;
    ctx.strokeStyle = colour;
    ctx.lineWidth = 1.4;
    ctx.setLineDash(dash);
    ctx.beginPath();
    ctx.moveTo(this.x(t), MARGIN.top - 4);
    ctx.lineTo(this.x(t), this.height - MARGIN.bottom);
    ctx.stroke();
    ctx.setLineDash([]);
    ctx.fillStyle = colour;
    ctx.textAlign = side;
    ctx.textBaseline = "alphabetic";
    ctx.fillText(text, this.x(t) + (side === "right" ? 4 : side === "left" ? -4 : 0), 13);
  }
}

// What the model is compared with: exact inference, or the combination that it is a part of.
const otherOf = (jump) => jump.exact ?? jump.combination;

// The model's band from now on, and the other one as dashed outlines.
function drawBand(plot, t, now, band, other) {
  const times = [t, ...band.dt.map((dt) => t + dt)];
  const rows = band.quantiles.map((row, level) => [now[level], ...row]);
  plot.area(times, rows[0], rows[4], themeColour("band-wide"));
  plot.area(times, rows[1], rows[3], themeColour("band-narrow"));
  const { ctx } = plot;
  if (!other) return;
  ctx.strokeStyle = themeColour("exact");
  ctx.lineWidth = 1.3;
  for (const [level, dash] of [[0, [6, 4]], [4, [6, 4]], [1, [1.5, 3.5]], [3, [1.5, 3.5]]]) {
    ctx.setLineDash(dash);
    const start = other.now ? [[t, other.now[level]]] : [];
    plot.line([...start, ...other.band.dt.map((dt, i) => [t + dt, other.band.quantiles[level][i]])]);
  }
  ctx.setLineDash([]);
}

function drawCurve(plot, t, curve, fill, stroke, dash, highest) {
  const { ctx } = plot;
  const width = Math.min(46, plot.x(plot.frame.end) - plot.x(t) - 2);
  ctx.beginPath();
  ctx.moveTo(plot.x(t), plot.y(curve.x[0]));
  curve.x.forEach((v, i) => ctx.lineTo(plot.x(t) + (width * curve.density[i]) / highest, plot.y(v)));
  ctx.lineTo(plot.x(t), plot.y(curve.x[curve.x.length - 1]));
  if (fill) { ctx.globalAlpha = 0.75; ctx.fillStyle = fill; ctx.fill(); ctx.globalAlpha = 1; }
  ctx.strokeStyle = stroke;
  ctx.lineWidth = 1.4;
  ctx.setLineDash(dash);
  ctx.stroke();
  ctx.setLineDash([]);
}

function drawObserved(plot, x, t) {
  const { ctx, frame } = plot;
  ctx.strokeStyle = themeColour("dot");
  ctx.lineWidth = 1;
  const shown = [];
  x.forEach((v, i) => { if (v !== null && i + 1 >= frame.start && i + 1 <= frame.end) shown.push([i + 1, v]); });
  plot.line(shown.filter(([time]) => time <= t));
  for (const [time, v] of shown) {
    ctx.beginPath();
    ctx.arc(plot.x(time), plot.y(v), time <= t ? 2.6 : 2.4, 0, 2 * Math.PI);
    if (time <= t) { ctx.fillStyle = themeColour("seen"); ctx.fill(); continue; }
    ctx.fillStyle = themeColour("card");
    ctx.fill();
    ctx.strokeStyle = themeColour("soft");
    ctx.stroke();
  }
}

function drawMoments(plot, view) {
  const near = plot.x(view.t + view.dt) - plot.x(view.t) < 110;
  plot.moment(view.t, `now, t = ${view.t}`, themeColour("ink"), [], near ? "right" : "center");
  plot.moment(view.t + view.dt, `t + ${view.dt}`, themeColour("accent"), [3, 3], near ? "left" : "center");
}

function highestOf(...curves) {
  return Math.max(...curves.filter(Boolean).flatMap((curve) => curve.density));
}

// One jump: an arc from the state now to the state after the jump, then single steps.
export function drawJump(canvas, frame, view, x, jump) {
  const plot = new Plot(canvas, frame);
  if (!frame.bare) plot.axes();
  plot.ctx.save();
  plot.clip();
  const { ctx } = plot, arrival = view.t + view.dt, other = frame.bare ? null : otherOf(jump);
  drawBand(plot, view.t, jump.now.band, jump.band, other);
  const highest = highestOf(jump.end.curve, other?.curve);
  drawCurve(plot, arrival, jump.end.curve, themeColour("band-narrow"), themeColour("median"), [], highest);
  if (other) drawCurve(plot, arrival, other.curve, null, themeColour("exact"), [4, 3], highest);
  drawObserved(plot, x, view.t);
  jump.now.samples.forEach((from, i) => {
    const to = jump.end.samples[i];
    ctx.strokeStyle = sampleColour(i);
    ctx.lineWidth = 1.8;
    ctx.setLineDash([5, 4]);
    ctx.beginPath();
    ctx.moveTo(plot.x(view.t), plot.y(from));
    const middle = (plot.x(view.t) + plot.x(arrival)) / 2;
    const top = Math.min(plot.y(from), plot.y(to)) - Math.min(120, 24 + 0.5 * (plot.x(arrival) - plot.x(view.t)));
    ctx.quadraticCurveTo(middle, top, plot.x(arrival), plot.y(to));
    ctx.stroke();
    ctx.setLineDash([]);
    if (jump.tail[i]) plot.line([[arrival, to], ...jump.tail[i].map((v, step) => [arrival + step + 1, v])]);
  });
  jump.now.samples.forEach((v, i) => drawMarker(ctx, i, plot.x(view.t), plot.y(v), 4));
  jump.end.samples.forEach((v, i) => drawMarker(ctx, i, plot.x(arrival), plot.y(v), 5));
  plot.ctx.restore();
  if (!frame.bare) drawMoments(plot, view);
}

// Step by step: a path through every time step.
export function drawSteps(canvas, frame, view, x, jump, steps) {
  const plot = new Plot(canvas, frame);
  if (!frame.bare) plot.axes();
  plot.ctx.save();
  plot.clip();
  const { ctx } = plot, arrival = view.t + view.dt, other = frame.bare ? null : otherOf(jump);
  if (steps) {
    drawBand(plot, view.t, jump.now.band, steps.band, other);
    const highest = highestOf(steps.curve, other?.curve);
    drawCurve(plot, arrival, steps.curve, themeColour("band-narrow"), themeColour("median"), [], highest);
    if (other) drawCurve(plot, arrival, other.curve, null, themeColour("exact"), [4, 3], highest);
  }
  drawObserved(plot, x, view.t);
  steps?.paths.forEach((path, i) => {
    ctx.strokeStyle = sampleColour(i);
    ctx.lineWidth = 1.8;
    plot.line([[view.t, jump.now.samples[i]], ...path.map((v, step) => [view.t + step + 1, v])]);
  });
  jump.now.samples.forEach((v, i) => drawMarker(ctx, i, plot.x(view.t), plot.y(v), 4));
  steps?.paths.forEach((path, i) => drawMarker(ctx, i, plot.x(arrival), plot.y(path[path.length - 1]), 5));
  plot.ctx.restore();
  if (!frame.bare) drawMoments(plot, view);
}

export function ticks(low, high, count) {
  const raw = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= raw);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + 1e-9 * step; value += step) found.push(Number(value.toPrecision(10)));
  return found;
}

// Small samples of each kind of line, for the legend.
export function legendItems(other, jumps) {
  const items = [
    ["seen by the model", (ctx) => { ctx.fillStyle = themeColour("seen"); dot(ctx, 15, 8, 3); ctx.fill(); }],
    ["what really happened, not shown to the model", (ctx) => { ctx.strokeStyle = themeColour("soft"); dot(ctx, 15, 8, 3); ctx.stroke(); }],
    ["one possible state: its jump, then single steps", (ctx) => {
      ctx.strokeStyle = sampleColour(0); ctx.lineWidth = 1.8; ctx.setLineDash(jumps ? [5, 4] : []);
      ctx.beginPath(); ctx.moveTo(2, 8); ctx.lineTo(28, 8); ctx.stroke(); ctx.setLineDash([]); drawMarker(ctx, 0, 15, 8, 4); }],
    ["50 % and 90 % of all futures", (ctx) => {
      ctx.fillStyle = themeColour("band-wide"); ctx.fillRect(0, 1, 30, 14); ctx.fillStyle = themeColour("band-narrow"); ctx.fillRect(0, 5, 30, 6); }],
  ];
  if (other) items.push([other, (ctx) => {
    ctx.strokeStyle = themeColour("exact"); ctx.lineWidth = 1.4; ctx.setLineDash([6, 4]);
    ctx.beginPath(); ctx.moveTo(0, 8); ctx.lineTo(30, 8); ctx.stroke(); ctx.setLineDash([]); }]);
  return items;
}

function dot(ctx, x, y, size) {
  ctx.beginPath();
  ctx.arc(x, y, size, 0, 2 * Math.PI);
}
