// The state in two dimensions: the cloud of all belief samples, those of this belief, and what is observed in a state.

import { drawMarker, prepareCanvas, scaleColour, shortNumber, themeColour } from "./palette.js";

export class CloudView {
  constructor(canvas, tip, scale) {
    Object.assign(this, { canvas, tip, scale, cloud: null, states: null, colour: "time", nearest: -1 });
    canvas.addEventListener("pointermove", (event) => this.point(event.offsetX, event.offsetY));
    canvas.addEventListener("pointerleave", () => this.leave());
    canvas.addEventListener("keydown", (event) => {
      if (!this.cloud || !["n", "p"].includes(event.key)) return;
      const count = this.cloud.points.length;
      this.show((this.nearest + (event.key === "n" ? 1 : count - 1) + count) % count);
    });
  }

  set(cloud, pictures, channels) {
    Object.assign(this, { cloud, pictures, channels, nearest: -1 });
    this.leave();
  }

  draw() {
    if (!this.cloud) return;
    const { ctx, width, height } = prepareCanvas(this.canvas);
    const own = [...(this.states?.now ?? []), ...(this.states?.end ?? [])];
    const ends = [0, 1].map((axis) => {
      const sorted = this.cloud.points.map((point) => point[axis]).sort((a, b) => a - b), few = Math.floor(0.005 * sorted.length);
      const all = [sorted[few], sorted[sorted.length - 1 - few], ...own.map((point) => point[axis])];  // without the outermost
      return [Math.min(...all), Math.max(...all)];
    });
    const place = (value, axis, size) => 14 + ((size - 28) * (value - ends[axis][0])) / (ends[axis][1] - ends[axis][0] || 1);
    this.place = ([a, b]) => [place(a, 0, width), height - place(b, 1, height)];
    const values = this.cloud.colours[this.colour];
    const known = (values ?? []).filter((value) => value !== null);
    const low = Math.min(...known), high = Math.max(...known);
    ctx.globalAlpha = 0.8;
    this.cloud.points.forEach((point, i) => {
      const [x, y] = this.place(point);
      ctx.fillStyle = known.length && values[i] !== null ? scaleColour((values[i] - low) / (high - low || 1)) : themeColour("dot");
      ctx.beginPath();
      ctx.arc(x, y, i === this.nearest ? 6 : 2.6, 0, 2 * Math.PI);
      ctx.fill();
    });
    ctx.globalAlpha = 1;
    this.states?.end.forEach((point, i) => drawMarker(ctx, i, ...this.place(point), 5.5, true));
    this.states?.now.forEach((point, i) => drawMarker(ctx, i, ...this.place(point), 6.5));
    this.scale.textContent = known.length ? `dark ${shortNumber(low)} … bright ${shortNumber(high)}` : "";
  }

  point(x, y) {
    if (!this.cloud || !this.place) return;
    let best = -1, least = 14 ** 2;
    this.cloud.points.forEach((each, i) => {
      const [px, py] = this.place(each);
      const distance = (px - x) ** 2 + (py - y) ** 2;
      if (distance < least) [best, least] = [i, distance];
    });
    if (best < 0) this.leave();
    else if (best !== this.nearest) this.show(best);
  }

  show(index) {
    this.nearest = index;
    this.draw();
    const [x, y] = this.place(this.cloud.points[index]);
    this.tip.replaceChildren();
    const lines = [`t = ${this.cloud.colours.time[index]}, sequence ${this.cloud.sequence[index] + 1}`];
    if (this.colour !== "time") lines.push(`${this.colour}: ${shortNumber(this.cloud.colours[this.colour][index])}`);
    if (this.pictures) this.tip.append(this.pictures[index]);
    else this.channels.slice(0, 6).forEach((name, c) => lines.push(`observed here: ${name} ≈ ${shortNumber(this.cloud.decoded.values[index][c])}`));
    for (const text of lines) this.tip.append(Object.assign(document.createElement("div"), { textContent: text }));
    this.tip.hidden = false;
    this.tip.style.left = `${Math.min(x + 12, this.canvas.clientWidth - 190)}px`;
    this.tip.style.top = `${Math.max(0, y - 30)}px`;
  }

  leave() {
    this.tip.hidden = true;
    if (this.nearest >= 0) { this.nearest = -1; this.draw(); }
  }
}
