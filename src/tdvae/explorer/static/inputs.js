// Actions and covariates of the jump: drawn with the pointer, or set for the whole jump.

import { prepareCanvas, shortNumber, themeColour } from "./palette.js";

const MOST_EDITS = 40;

export function parseEdits(text) {
  const found = [];
  for (const part of (text || "").split(";")) {
    const [input, value, first, last] = part.split(":").map(Number);
    if (Number.isInteger(input) && Number.isFinite(value) && first >= 1 && last >= first) found.push({ input, value, first, last });
  }
  return found;
}

// Runs of equal values as one edit each.
export function editsText(changed) {
  const parts = [];
  changed.forEach((values, input) => {
    for (let step = 0; step < values.length; step++) {
      if (values[step] === undefined) continue;
      let last = step;
      while (values[last + 1] === values[step]) last++;
      parts.push(`${input}:${Number(values[step].toPrecision(3))}:${step + 1}:${last + 1}`);
      step = last;
    }
  });
  return parts.slice(-MOST_EDITS).join(";");
}

export class InputRows {
  constructor(container, model, onChange) {
    Object.assign(this, { model, onChange });
    container.replaceChildren();
    this.rows = model.inputs.map((input, index) => this.row(container, input, index));
  }

  row(container, input, index) {
    const element = Object.assign(document.createElement("div"), { className: "input-row" });
    const canvas = document.createElement("canvas");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `${input.name} during the jump`);
    const field = input.classes.length ? document.createElement("select") : document.createElement("input");
    if (input.classes.length) field.append(new Option("choose …", ""), ...input.classes.map((value, i) => new Option(input.labels[i] ?? value, value)));
    else Object.assign(field, { type: "number", step: "any", placeholder: "all steps" });
    field.setAttribute("aria-label", `${input.name} for the whole jump`);
    field.addEventListener("change", () => { if (field.value !== "" && Number.isFinite(Number(field.value))) this.setAll(index, Number(field.value)); });
    const reset = Object.assign(document.createElement("button"), { type: "button", textContent: "As recorded" });
    reset.addEventListener("click", () => { field.value = ""; this.setAll(index, undefined); });
    element.append(Object.assign(document.createElement("span"), { className: "name", textContent: input.name }), canvas, field, reset);
    container.append(element);
    const drag = (event) => { if (event.buttons) this.paint(index, event.offsetX, event.offsetY); };
    canvas.addEventListener("pointerdown", drag);
    canvas.addEventListener("pointermove", drag);
    return { canvas };
  }

  update(view, sequence) {
    this.view = view;
    this.recorded = sequence.inputs.map((values) => values.slice(view.t, view.t + view.dt));
    this.range = sequence.inputs.map((values) => { const low = Math.min(...values), high = Math.max(...values); return high > low ? [low, high] : [low - 1, high + 1]; });
    this.changed = this.recorded.map((values) => new Array(values.length).fill(undefined));
    for (const { input, value, first, last } of parseEdits(view.edits)) {
      if (!this.changed[input]) continue;
      for (let step = first; step <= Math.min(last, view.dt); step++) this.changed[input][step - 1] = value;
      this.range[input] = [Math.min(this.range[input][0], value), Math.max(this.range[input][1], value)];
    }
    this.rows.forEach((_, index) => this.draw(index));
  }

  setAll(index, value) {
    this.changed[index].fill(value);
    this.onChange(editsText(this.changed));
  }

  paint(index, x, y) {
    const { canvas } = this.rows[index], count = this.changed[index].length;
    const step = Math.min(count - 1, Math.max(0, Math.floor((x / canvas.clientWidth) * count)));
    const [low, high] = this.range[index];
    let value = low + (high - low) * Math.min(1, Math.max(0, 1 - (y - 6) / (canvas.clientHeight - 12)));
    const { classes } = this.model.inputs[index];
    if (classes.length) value = classes.reduce((best, each) => (Math.abs(each - value) < Math.abs(best - value) ? each : best));
    this.changed[index][step] = Number(value.toPrecision(3));
    this.onChange(editsText(this.changed));
  }

  draw(index) {
    const { ctx, width, height } = prepareCanvas(this.rows[index].canvas);
    const values = this.recorded[index], [low, high] = this.range[index], wide = width / values.length;
    const y = (value) => 6 + (height - 12) * (1 - (value - low) / (high - low));
    const steps = (list, colour, dash, thick) => {
      ctx.strokeStyle = themeColour(colour);
      ctx.lineWidth = thick;
      ctx.setLineDash(dash);
      ctx.beginPath();
      list.forEach((value, i) => {
        if (value === undefined) return;
        if (i === 0 || list[i - 1] === undefined) ctx.moveTo(i * wide, y(value));
        else ctx.lineTo(i * wide, y(value));
        ctx.lineTo((i + 1) * wide, y(value));
      });
      ctx.stroke();
      ctx.setLineDash([]);
    };
    steps(values, "soft", [3, 3], 1.2);
    steps(this.changed[index].some((value) => value !== undefined) ? values.map((value, i) => this.changed[index][i] ?? value) : [], "accent", [], 2);
    ctx.fillStyle = themeColour("soft");
    ctx.textAlign = "left";
    ctx.fillText(shortNumber(high), 2, 12);
    ctx.fillText(shortNumber(low), 2, height - 3);
  }
}
