// The table of scores at this horizon.

import { shortNumber } from "./palette.js";

const percent = (share) => (share === null || share === undefined ? "–" : `${Math.round(100 * share)} %`);

// Rows: [name, scores of this forecast, mean scores over all held-out sequences].
export function scoreRows(panels, scores) {
  const found = [];
  panels.forEach((row, index) => {
    const name = panels.length > 1 ? `${"AB"[index]}: ` : "";
    found.push([`${name}one jump`, row.jump?.scores, scores[index]?.model]);
    found.push([`${name}step by step`, row.steps?.scores, undefined]);
    const combination = row.jump?.combination;
    if (combination) found.push([`${name}${combination.name}`, combination.scores, scores[index]?.combination]);
  });
  const exact = panels[0]?.jump?.exact;
  if (exact) found.push([exact.name, exact.scores, scores[0]?.exact]);
  return found;
}

export function drawScores(table, rows, count) {
  const head = table.createTHead(), body = document.createElement("tbody");
  head.replaceChildren();
  const groups = head.insertRow(), names = head.insertRow();
  cell(groups, "th", "");
  cell(groups, "th", "this forecast", 3);
  cell(groups, "th", count ? `mean of ${count} sequences` : "all sequences", 4);
  for (const text of ["", "NLL", "CRPS", "inside", "NLL", "CRPS", "50 %", "90 %"]) cell(names, "th", text);
  for (const [name, here, all] of rows) {
    const row = body.insertRow();
    cell(row, "td", name);
    for (const key of ["nll", "crps"]) cell(row, "td", shortNumber(here?.[key]));
    cell(row, "td", here ? (here.inside_50 ? "50 %" : here.inside_90 ? "90 %" : "no") : "–");
    for (const key of ["nll", "crps"]) cell(row, "td", shortNumber(all?.[key]));
    for (const key of ["inside_50", "inside_90"]) cell(row, "td", percent(all?.[key]));
  }
  table.querySelectorAll("tbody").forEach((each) => each.remove());
  table.append(body);
}

function cell(row, kind, text, span = 1) {
  const element = document.createElement(kind);
  element.textContent = text;
  if (span > 1) element.colSpan = span;
  row.append(element);
}
