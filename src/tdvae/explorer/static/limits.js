// Where a view begins, and what its values may be. An exported page has answers for some values only.

import { exported } from "./api.js";

const MOST_SAMPLES = 24, LONGEST = 480;

export function startView(model) {
  const picture = model.kind === "picture", length = model.lengths[0];
  const view = { model: model.name, with: "", sequence: 0, samples: picture ? 5 : 8, channel: 0, seed: 0, edits: "", colour: "" };
  view.t = picture ? Math.min(6, length - 1) : Math.min(60, Math.floor(0.5 * length));
  const most = model.dt_given ? Math.min(model.longest_jump, model.actions ? length - view.t : LONGEST) : LONGEST;
  view.dt = Math.max(1, Math.min(picture ? 8 : 20, most));
  return exported ? { ...view, ...exported.grid[model.name].start } : view;
}

// The values that a control may take: all that were exported, or the least and the largest.
export function allowedValues(name, view, model) {
  if (exported && exported.grid[view.model][name]) return exported.grid[view.model][name];
  const length = model.lengths[view.sequence];
  if (name === "t") return [0, model.actions ? length - 1 : length];
  if (name === "dt") return [1, model.actions ? Math.min(model.longest_jump * 4, LONGEST, length - view.t) : model.longest_request];
  return [0, model.lengths.length - 1];
}

export function limitView(view, model) {
  const near = (list, value) => list.reduce((best, each) => (Math.abs(each - value) < Math.abs(best - value) ? each : best));
  for (const name of ["sequence", "t", "dt"]) {
    const allowed = allowedValues(name, view, model), listed = exported && exported.grid[view.model][name];
    view[name] = listed ? near(allowed, view[name]) : Math.min(allowed[1], Math.max(allowed[0], Math.round(view[name]) || 0));
  }
  view.samples = exported ? exported.grid[view.model].start.samples : Math.min(MOST_SAMPLES, Math.max(1, Math.round(view.samples) || 1));
  view.channel = Math.min(model.channels.length - 1, Math.max(0, view.channel));
  if (!model.inputs.length) view.edits = "";
}
