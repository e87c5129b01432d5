// The gallery: what a belief and a jump are, and a card for each model with a small picture of one of its forecasts.

import { ask } from "./api.js";
import { drawJump, drawSteps, frameOf } from "./chart.js";
import { prepareCanvas, themeColour } from "./palette.js";
import { unpack, unpackAnswer } from "./strips.js";

// Forecasts of one wave that explain the words of this page; all times are in an exported page as well.
const TEACHER = "oscillator", AHEAD = 40;
const LESSONS = [
  [5, false, "A belief is wide at first.", "After 5 noisy measurements (black) many waves are possible. Each line is one of them, drawn from the belief."],
  [60, false, "It sharpens.", "After 60 measurements few waves still fit. What really came (hollow) was not shown to the model."],
  [60, true, "A jump skips the steps between.", "From each possible state one evaluation of the model leads 40 steps ahead. Nothing between is computed."],
];

export async function fillLesson(container, models) {
  container.hidden = !models.some(({ name }) => name === TEACHER);
  if (!container.hidden) await drawLesson(container).catch(() => { container.hidden = true; });
}

// One after another: the server lets a newer request of a page replace an older one of the same kind.
async function drawLesson(container) {
  const canvases = LESSONS.map(([, , title, text], i) => {
    const figure = document.createElement("figure"), canvas = document.createElement("canvas"), caption = document.createElement("figcaption");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `${title} ${text}`);
    caption.append(Object.assign(document.createElement("b"), { textContent: `${i + 1}. ${title}` }), ` ${text}`);
    figure.append(canvas, caption);
    return canvas;
  });
  container.replaceChildren(...canvases.map((canvas) => canvas.parentElement));
  const sequence = await ask("lesson-sequence", "sequence", { model: TEACHER, sequence: 0 });
  const frame = { start: 0, end: 115, low: -1.4, high: 1.7, bare: true, length: sequence.length };
  for (const [i, [t, jumps]] of LESSONS.entries()) {
    const view = { model: TEACHER, sequence: 0, t, dt: AHEAD, samples: 8 };
    const jump = await ask("lesson", "jump", view);
    if (jumps) drawJump(canvases[i], frame, view, sequence.x[0], jump);
    else drawSteps(canvases[i], frame, view, sequence.x[0], jump, await ask("lesson-steps", "steps", view));
  }
}

// Returns what draws the previews.
export function fillGallery(container, models, startOf) {
  container.replaceChildren();
  const previews = [];
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
    previews.push(() => drawPreview(canvas, model, startOf).catch(() => canvas.remove()));
  }
  return () => Promise.all(previews.map((draw) => draw()));
}

async function drawPreview(canvas, card, startOf) {
  const view = await startOf(card.name);
  const query = { model: view.model, sequence: view.sequence, t: view.t, dt: view.dt, samples: view.samples };
  const sequence = await ask(`preview-sequence/${card.name}`, "sequence", { model: view.model, sequence: view.sequence });
  const jump = await ask(`preview/${card.name}`, "jump", query);
  if (card.kind === "picture") {
    const seen = (await unpack(sequence.frames)).slice(0, view.t);
    const frames = [...seen.slice(-2), ...(await unpackAnswer(jump)).endFrames.slice(0, 4)];
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
