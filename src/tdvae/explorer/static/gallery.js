// The gallery: a card for each model, with a small picture of one of its forecasts.

import { ask } from "./api.js";
import { drawJump, frameOf } from "./chart.js";
import { prepareCanvas, themeColour } from "./palette.js";
import { unpack } from "./strips.js";

export async function fillGallery(container, models, startOf) {
  container.replaceChildren();
  models = [...models].sort((a, b) => Number(a.kind === "picture") - Number(b.kind === "picture"));
  for (const model of models) {
    const card = document.createElement(model.problem ? "div" : "a");
    card.className = "card";
    const text = document.createElement("div");
    text.append(Object.assign(document.createElement("h2"), { textContent: model.title }));
    text.append(Object.assign(document.createElement("p"), { textContent: model.problem ?? model.about, className: model.problem ? "problem-line" : "" }));
    container.append(card);
    if (model.problem) { card.append(text); continue; }
    card.href = `#model=${encodeURIComponent(model.name)}`;
    const canvas = document.createElement("canvas");
    card.append(canvas, text);
    drawPreview(canvas, model, startOf).catch(() => canvas.remove());
  }
}

async function drawPreview(canvas, card, startOf) {
  const view = await startOf(card.name);
  const query = { model: view.model, sequence: view.sequence, t: view.t, dt: view.dt, samples: view.samples };
  const sequence = await ask(`preview-sequence/${card.name}`, "sequence", { model: view.model, sequence: view.sequence });
  const jump = await ask(`preview/${card.name}`, "jump", query);
  if (card.kind === "picture") {
    const frames = [...unpack(sequence.frames).slice(0, view.t).slice(-2), ...unpack(jump.end).slice(0, 4)];
    const { ctx, width, height } = prepareCanvas(canvas);
    const size = Math.min(84, width / frames.length - 8);
    ctx.imageSmoothingEnabled = false;
    frames.forEach((frame, i) => {
      const x = 14 + i * ((width - 28 - size) / (frames.length - 1));
      ctx.drawImage(frame, x, (height - size) / 2, size, size);
      ctx.strokeStyle = themeColour(i < 2 ? "soft" : "accent");
      ctx.strokeRect(x, (height - size) / 2, size, size);
    });
    return;
  }
  const x = sequence.x[0];
  const values = [...x.slice(view.t - 60 > 0 ? view.t - 60 : 0, view.t + view.dt + 20), ...jump.end.samples].filter((value) => value !== null);
  drawJump(canvas, { ...frameOf(view, sequence.length, values, jump), bare: true }, view, x, jump);
}
