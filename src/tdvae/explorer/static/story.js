// What the view shows, in a few sentences for a visitor who knows neither beliefs nor jumps.

import { shortNumber } from "./palette.js";

export function storyOf(view, model) {
  const many = (count, one) => `<b>${count}</b> ${one}${count === 1 ? "" : "s"}`;
  const unit = model.kind === "picture" ? "frame" : "observation";
  const seen = view.t === 0 ? "Before the first observation the model can only guess. Its" : `After ${many(view.t, unit)} the model holds a`;
  const belief = `${seen} <em>belief</em>${view.t === 0 ? " is wide" : ""}: states of the world that fit what it has seen. Here ${view.samples === 1 ? "is" : "are"} <b>${view.samples}</b> of them, each with its own colour and shape.`;
  if (!model.dt_given) return `${belief} One <em>jump</em> carries each of them some frames ahead at once. ${model.dt_note}`;
  const count = Math.ceil(view.dt / model.longest_jump);
  if (count === 1) return `${belief} One <em>jump</em> carries each of them ${many(view.dt, "step")} ahead at once, without the steps between.`;
  return `${belief} The model has learned <em>jumps</em> of up to ${model.longest_jump} steps, so <b>${count}</b> in a row carry each of them ${many(view.dt, "step")} ahead.`;
}

// What this jump says, in numbers, and what really happened.
export function outcomeOf(view, model, jump, sequence) {
  if (model.kind === "picture") return "Each row is one of the states. What differs between the rows is what the model does not know.";
  const ends = jump.band.quantiles.map((row) => row[row.length - 1]), name = model.channels[view.channel];
  const real = sequence.x[view.channel][view.t + view.dt - 1];
  const text = `In 90 of 100 futures <b>${escaped(name)}</b> is then between <b>${shortNumber(ends[0])}</b> and <b>${shortNumber(ends[4])}</b>.`;
  if (real === null || real === undefined) return text;
  return `${text} What really came, which the model was not shown, is <b>${shortNumber(real)}</b>.`;
}

function escaped(text) {
  return text.replace(/[&<>"]/g, (letter) => `&#${letter.charCodeAt(0)};`);
}
