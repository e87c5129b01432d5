// Save what is shown as a picture or as numbers.

import { themeColour } from "./palette.js";

function download(blob, name) {
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// Pictures are in the answers as files already.
function withoutCanvases(name, value) {
  return ["pictures", "nowFrames", "endFrames", "rows"].includes(name) ? undefined : value;
}

export function saveJson(content, name) {
  download(new Blob([JSON.stringify(content, withoutCanvases, 1)], { type: "application/json" }), `${name}.json`);
}

// All panels of a page on one picture, with the title and the sentence above them.
export function savePng(title, story, canvases, name) {
  const ratio = window.devicePixelRatio || 1, gap = 24, head = 84;
  const shown = canvases.filter((canvas) => canvas.clientWidth > 0);
  const tops = [...new Set(shown.map((canvas) => Math.round(canvas.getBoundingClientRect().top)))].sort((a, b) => a - b);
  const rows = tops.map((top) => shown.filter((canvas) => Math.round(canvas.getBoundingClientRect().top) === top));
  const width = Math.max(...rows.map((row) => row.reduce((sum, canvas) => sum + canvas.clientWidth + gap, gap)));
  const height = rows.reduce((sum, row) => sum + row[0].clientHeight + gap, head + gap);
  const page = document.createElement("canvas");
  page.width = width * ratio;
  page.height = height * ratio;
  const ctx = page.getContext("2d");
  ctx.scale(ratio, ratio);
  ctx.fillStyle = themeColour("card");
  ctx.fillRect(0, 0, width, height);
  ctx.fillStyle = themeColour("ink");
  ctx.font = "600 20px system-ui, sans-serif";
  ctx.fillText(title, gap, 36);
  ctx.font = "14px system-ui, sans-serif";
  ctx.fillStyle = themeColour("soft");
  ctx.fillText(story, gap, 62, width - 2 * gap);
  let y = head;
  for (const row of rows) {
    let x = gap;
    for (const canvas of row) { ctx.drawImage(canvas, x, y, canvas.clientWidth, canvas.clientHeight); x += canvas.clientWidth + gap; }
    y += row[0].clientHeight + gap;
  }
  page.toBlob((blob) => download(blob, `${name}.png`), "image/png");
}
