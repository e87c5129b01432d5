// Pictures: frames as strips. Futures play in the first column of each row.

import { drawMarker, prepareCanvas, themeColour } from "./palette.js";

// Packed pictures of the API as canvases of their own size.
export async function unpack({ image, type, height, width, count }) {
  const bytes = Uint8Array.from(atob(image), (letter) => letter.charCodeAt(0));
  const sheet = await createImageBitmap(new Blob([bytes], { type }));
  const pictures = Array.from({ length: count }, (_, index) => {
    const canvas = Object.assign(document.createElement("canvas"), { width, height });
    canvas.getContext("2d").drawImage(sheet, 0, -index * height);
    return canvas;
  });
  sheet.close();
  return pictures;
}

// The pictures of an answer to `jump` or `steps`, if it has any.
export async function unpackAnswer(answer) {
  if (answer?.now?.image) Object.assign(answer, { nowFrames: await unpack(answer.now), endFrames: await unpack(answer.end) });
  if (answer?.strips) {
    const frames = await unpack(answer.strips), columns = answer.columns.length;
    answer.rows = Array.from({ length: frames.length / columns }, (_, row) => frames.slice(row * columns, (row + 1) * columns));
  }
  return answer;
}

function tile(ctx, picture, x, y, size, edge, dash = []) {
  ctx.imageSmoothingEnabled = false;
  ctx.drawImage(picture, x, y, size, size);
  ctx.strokeStyle = edge;
  ctx.lineWidth = 1;
  ctx.setLineDash(dash);
  ctx.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
  ctx.setLineDash([]);
}

function label(ctx, text, x, y, colour = "soft", align = "center") {
  ctx.fillStyle = themeColour(colour);
  ctx.textAlign = align;
  ctx.textBaseline = "alphabetic";
  ctx.fillText(text, x, y);
}

// The frames up to t, the newest at the right edge of "seen"; then what really came.
export function drawSeen(canvas, frames, t) {
  const { ctx, width, height } = prepareCanvas(canvas);
  const size = Math.min(height - 20, 62), step = size + 4;
  const room = Math.floor(width / step);
  const first = Math.max(0, Math.min(t - Math.ceil(0.6 * room), frames.length - room));
  for (let i = 0; i < room && first + i < frames.length; i++) {
    const number = first + i + 1;
    ctx.globalAlpha = number <= t ? 1 : 0.38;
    tile(ctx, frames[number - 1], i * step, 16, size, themeColour(number === t ? "accent" : "line"), number <= t ? [] : [3, 3]);
    ctx.globalAlpha = 1;
    if (number === t) label(ctx, `now, t = ${t}`, i * step + size / 2, 11, "ink");
    else if (number === t + 1) label(ctx, "not seen yet", i * step + 0.75 * size, 11, "soft", "left");
  }
}

// Rows of samples: the state now, and after the jump. `truth` holds the frames now and then, if they are known.
export function drawPictureJump(canvas, jump, truth, arrivalLabel) {
  const { ctx, width, height } = prepareCanvas(canvas);
  const rows = jump.nowFrames.length + 1, top = 20;
  const size = Math.max(12, Math.min((height - top) / rows - 5, width / 3.4));
  const left = Math.max(30, width / 2 - 1.5 * size - 10), right = left + 1.9 * size;
  label(ctx, "now", left + size / 2, 13, "ink");
  label(ctx, arrivalLabel, right + size / 2, 13, "accent");
  const rowTop = (row) => top + row * (size + 5);
  label(ctx, "truth", left - 8, rowTop(0) + size / 2 + 4, "soft", "right");
  if (truth.now) tile(ctx, truth.now, left, rowTop(0), size, themeColour("soft"));
  if (truth.then) tile(ctx, truth.then, right, rowTop(0), size, themeColour("soft"));
  else label(ctx, "–", right + size / 2, rowTop(0) + size / 2 + 4);
  jump.nowFrames.forEach((picture, i) => {
    const y = rowTop(i + 1);
    drawMarker(ctx, i, left - 16, y + size / 2, 5);
    tile(ctx, picture, left, y, size, themeColour("line"));
    tile(ctx, jump.endFrames[i], right, y, size, themeColour("accent"));
    arrow(ctx, left + size + 6, right - 6, y + size / 2);
  });
}

function arrow(ctx, from, to, y) {
  ctx.strokeStyle = themeColour("soft");
  ctx.lineWidth = 1.3;
  ctx.setLineDash([4, 3]);
  ctx.beginPath();
  ctx.moveTo(from, y);
  ctx.quadraticCurveTo((from + to) / 2, y - 14, to, y);
  ctx.stroke();
  ctx.setLineDash([]);
  ctx.beginPath();
  ctx.moveTo(to - 6, y - 6);
  ctx.lineTo(to, y);
  ctx.lineTo(to - 7, y + 1);
  ctx.stroke();
}

// Rows of samples: a tile that plays, then the strip.
export function drawStrips(canvas, steps, truth, moment) {
  const { ctx, width, height } = prepareCanvas(canvas);
  const columns = steps.columns.length, rows = steps.rows.length + 1, top = 20, left = 54;
  const big = Math.max(12, (height - top) / rows - 5);
  const size = Math.max(8, Math.min(big, (width - left - big - 14) / columns - 3));
  const rowTop = (row) => top + row * (big + 5);
  const at = Math.floor(moment) % columns;
  const column = (i) => left + big + 14 + i * (size + 3);
  label(ctx, "playing", left + big / 2, 13, "ink");
  steps.columns.forEach((step, i) => { if (columns <= 8 || i % 2 === columns % 2 ^ 1) label(ctx, `+${step}`, column(i) + size / 2, 13, i === at ? "accent" : "soft"); });
  label(ctx, "truth", left - 8, rowTop(0) + big / 2 + 4, "soft", "right");
  const line = (row, pictures) => {
    if (pictures[at]) tile(ctx, pictures[at], left, rowTop(row), big, themeColour("accent"));
    pictures.forEach((picture, i) => { if (picture) tile(ctx, picture, column(i), rowTop(row) + (big - size) / 2, size, themeColour(i === at ? "accent" : "line")); });
  };
  if (truth.length) line(0, truth);
  else label(ctx, "not comparable: the model chooses how far each jump goes", left, rowTop(0) + big / 2 + 4, "soft", "left");
  steps.rows.forEach((pictures, i) => {
    drawMarker(ctx, i, left - 16, rowTop(i + 1) + big / 2, 5);
    line(i + 1, pictures);
  });
}
