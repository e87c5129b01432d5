// One row of panels for each model: one jump beside step by step, with the time that each took.

import { drawJump, drawSteps, frameOf } from "./chart.js";
import { shortNumber } from "./palette.js";
import { drawPictureJump, drawStrips } from "./strips.js";

export class PanelRow {
  constructor(container, model, whose, cancelSteps) {
    Object.assign(this, { model, jump: null, steps: null, stepsKey: "", moment: 0 });
    this.element = document.createElement("div");
    this.element.className = `pair ${model.kind}`;
    this.left = panel(this.element, whose, "One jump");
    this.right = panel(this.element, whose, model.dt_given ? "Step by step" : "Jump after jump");
    this.waiting = document.createElement("div");
    this.waiting.className = "waiting";
    this.waiting.hidden = true;
    const stop = Object.assign(document.createElement("button"), { type: "button", textContent: "Cancel" });
    stop.addEventListener("click", cancelSteps);
    this.waiting.append("computing every step …", stop);
    this.right.section.append(this.waiting);
    container.append(this.element);
  }

  setJump(jump) {
    this.jump = jump;
    this.left.title.textContent = jump.evaluations > 1 ? `${jump.evaluations} jumps in a row` : "One jump";
    this.left.cost.textContent = costText(jump, "jump");
  }

  setSteps(steps, key) {
    this.steps = steps;
    this.stepsKey = key;
    this.right.cost.textContent = steps ? costText(steps, "steps", this.jump) : "";
  }

  // All values that the charts must have room for.
  values(view, sequence) {
    const x = sequence.x[view.channel];
    const found = x.slice(Math.max(0, view.t - 60), view.t + view.dt + 22).filter((v) => v !== null);
    const jump = this.jump;
    found.push(...jump.now.samples, ...jump.end.samples, ...jump.band.quantiles[0], ...jump.band.quantiles[4]);
    for (const level of [0, 4]) found.push(...(jump.combination?.band.quantiles[level] ?? []));
    if (this.steps) found.push(...this.steps.band.quantiles[0], ...this.steps.band.quantiles[4]);
    return found.length ? found : [-1, 1];
  }

  draw(view, sequence, frame) {
    if (!this.jump) return;
    if (this.model.kind === "picture") this.drawPictures(view, sequence);
    else {
      const x = sequence.x[view.channel];
      drawJump(this.left.canvas, frame, view, x, this.jump);
      drawSteps(this.right.canvas, frame, view, x, this.jump, this.steps);
      this.left.canvas.setAttribute("aria-label", summary("One jump", view, this.jump.band, x));
      if (this.steps) this.right.canvas.setAttribute("aria-label", summary("Step by step", view, this.steps.band, x));
    }
  }

  drawPictures(view, sequence) {
    const given = this.model.dt_given, height = `${24 + (view.samples + 1) * (view.samples > 10 ? 40 : view.samples > 6 ? 54 : 72)}px`;
    for (const side of [this.left, this.right]) side.canvas.style.height = height;
    const frame = (t) => (t >= 1 ? sequence.pictures[t - 1] : undefined);
    const truth = { now: frame(view.t), then: given ? frame(view.t + view.dt) : undefined };
    drawPictureJump(this.left.canvas, this.jump, truth, given ? `t + ${view.dt}` : "after one jump");
    this.left.canvas.setAttribute("aria-label", `${view.samples} decoded states at t = ${view.t}, and each after one jump`);
    if (!this.steps) return;
    const later = given ? this.steps.columns.map((step) => frame(view.t + step)) : [];
    drawStrips(this.right.canvas, this.steps, later, this.moment);
    this.right.canvas.setAttribute("aria-label", `${view.samples} futures of ${view.dt} steps as strips of pictures`);
  }
}

export function sharedFrame(rows, view, sequence) {
  return frameOf(view, sequence.length, rows.filter((row) => row.jump).flatMap((row) => row.values(view, sequence)), rows[0].jump);
}

function panel(parent, whose, title) {
  const section = document.createElement("section");
  section.className = "panel";
  const head = document.createElement("div");
  head.className = "panel-head";
  const heading = document.createElement("h2");
  if (whose) heading.append(Object.assign(document.createElement("span"), { className: "whose", textContent: whose }));
  const text = document.createElement("span");
  text.textContent = title;
  heading.append(text);
  const cost = Object.assign(document.createElement("span"), { className: "cost" });
  const canvas = Object.assign(document.createElement("canvas"), { className: "chart" });
  canvas.setAttribute("role", "img");
  head.append(heading, cost);
  section.append(head, canvas);
  parent.append(section);
  return { section, canvas, cost, title: text };
}

function costText(answer, name, jump) {
  const count = answer.evaluations, spent = answer.milliseconds[name];
  const text = `${count} ${count === 1 ? "evaluation" : "evaluations"} · ${shortNumber(spent)} ms`;
  const ratio = jump ? spent / jump.milliseconds.jump : 0;
  return ratio >= 1.5 ? `${text} · ${Math.round(ratio)} × as long` : text;
}

function summary(title, view, band, x) {
  const last = band.quantiles.map((row) => shortNumber(row[row.length - 1]));
  const real = x[view.t + view.dt - 1];
  const truth = real === null || real === undefined ? "" : ` It really was ${shortNumber(real)}.`;
  return `${title}: after ${view.t} observations, ${view.dt} steps ahead: median ${last[2]}, 90 % between ${last[0]} and ${last[4]}.${truth}`;
}
