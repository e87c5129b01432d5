// What the view shows, in a few sentences for a visitor who knows neither beliefs nor jumps.

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
