// The page: controls, requests and drawing. `view` is all that a link holds.

import { RequestProblem, ask, cancel, exported } from "./api.js";
import { legendItems } from "./chart.js";
import { CloudView } from "./cloud.js";
import { fillGallery, fillLesson } from "./gallery.js";
import { InputRows } from "./inputs.js";
import { allowedValues, limitView, startView } from "./limits.js";
import { readLink, writeLink } from "./link.js";
import { drawMaze } from "./mazes.js";
import { prepareCanvas, shortNumber } from "./palette.js";
import { PanelRow, sharedFrame } from "./panels.js";
import { saveJson, savePng } from "./save.js";
import { drawScores, scoreRows } from "./scores.js";
import { outcomeOf, storyOf } from "./story.js";
import { drawSeen, unpack, unpackAnswer } from "./strips.js";

const byId = (id) => document.getElementById(id);
const QUICK = 150; // milliseconds that steps may take while a slider moves
const descriptions = new Map();
const cloudView = new CloudView(byId("cloud"), byId("decoded"), byId("cloud-scale"));

let gallery = null, view = {}, models = [], rows = [], sequence = null, scores = [], inputRows = null;
let playing = false, updating = false, wanted = false, millisecondsPerStep = 0.6, opened = 0, scoreTimer = 0, maze = null, busyCount = 0;

// Opening

async function start() {
  setTheme(localStorage.getItem("theme") || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
  connectControls();
  await guarded(async () => {
    gallery = await ask("gallery", "gallery", {});
    byId("version").textContent = `tdvae ${gallery.version}${exported ? ", exported page" : ""}`;
    const usable = gallery.models.filter((model) => !model.problem);
    byId("model").replaceChildren(...usable.map((model) => new Option(model.title, model.name)));
    await follow();
  });
}

// Show what the address says.
async function follow() {
  const link = readLink();
  const name = link.model ?? gallery.first;
  stopPlaying();
  byId("problem").hidden = true;
  if (!name) return showGallery();
  try {
    await open(name, { ...(link.model ? {} : { with: gallery.second ?? "" }), ...link });
  } catch (error) {
    await showGallery();
    report(error);
  }
}

async function showGallery() {
  models = [];
  byId("explorer").hidden = true;
  byId("gallery").hidden = false;
  byId("opening").hidden = true;
  setTools(false);
  byId("timing").textContent = "";
  document.title = "tdvae explorer";
  const drawPreviews = fillGallery(byId("cards"), gallery.models, async (name) => startView(await describe(name)));
  await fillLesson(byId("lesson"), gallery.models);
  await drawPreviews();
}

async function describe(name) {
  if (!descriptions.has(name)) descriptions.set(name, await ask(`model/${name}`, "model", { model: name }));
  return descriptions.get(name);
}

async function open(name, link) {
  const number = ++opened;
  const first = await describe(name);
  const second = link.with ? await describe(link.with) : null;
  if (number !== opened) return;
  models = second ? [first, second] : [first];
  view = { ...startView(first), ...link, model: name, with: second ? second.name : "" };
  byId("gallery").hidden = true;
  byId("explorer").hidden = false;
  byId("opening").hidden = true;
  setTools(true);
  byId("panels").replaceChildren();
  rows = models.map((model, i) => new PanelRow(byId("panels"), model, second ? "AB"[i] : "", () => cancelSteps(i)));
  scores = [];
  sequence = null;
  prepareControls(first, second);
  limitView(view, models[0]);
  const cloud = await ask("cloud", "cloud", { model: name });
  const pictures = cloud && first.kind === "picture" ? await unpack(cloud.decoded.pictures) : null;
  if (number !== opened || !cloud) return;
  cloudView.set(cloud, pictures, first.channels);
  byId("colour").replaceChildren(...Object.keys(cloud.colours).map((each) => new Option(each, each)), new Option("no colour", "none"));
  if (!(view.colour in cloud.colours) && view.colour !== "none") view.colour = Object.keys(cloud.colours)[0];
  byId("colour").value = view.colour;
  await update();
}

function setTools(shown) {
  for (const id of ["copy-link", "save-png", "save-json", "keys"]) byId(id).hidden = !shown;
}

// The view within its limits

function move(name, by) {
  const listed = exported && exported.grid[view.model][name];
  if (!listed) return change({ [name]: view[name] + by });
  const place = listed.indexOf(view[name]) + Math.sign(by);
  return change({ [name]: listed[Math.min(listed.length - 1, Math.max(0, place))] });
}

function change(changes) {
  if (!models.length) return Promise.resolve();
  if ("t" in changes || "sequence" in changes) changes = { edits: "", ...changes };
  Object.assign(view, changes);
  limitView(view, models[0]);
  return update();
}

function limits(name) {
  return allowedValues(name, view, models[0]);
}

// Requests: while one is under way, only the newest change is kept.

async function update() {
  showControls();
  writeLink(view);
  wanted = true;
  rows.forEach((_, i) => cancel(`scores/${i}`));  // they would hold up the answer to this step
  if (updating) return;
  updating = true;
  try {
    while (wanted) {
      wanted = false;
      await guarded(refresh);
    }
  } finally {
    updating = false;
  }
}

function query(model) {
  const found = { model: model.name, sequence: view.sequence, t: view.t, dt: view.dt, samples: view.samples, channel: view.channel, seed: view.seed };
  if (view.edits) found.edits = view.edits;
  if (model !== models[0]) found.of = models[0].name;
  return found;
}

async function refresh() {
  const number = opened, current = rows;
  if (!sequence || sequence.model !== view.model || sequence.number !== view.sequence) await loadSequence();
  if (number !== opened) return;
  const begin = performance.now();
  const queries = models.map(query), keys = queries.map((each) => JSON.stringify(each));
  const answers = await Promise.all(models.map(async (model, i) => unpackAnswer(await ask(`jump/${i}`, "jump", queries[i]))));
  if (number !== opened || answers.some((answer) => !answer)) return;
  const elapsed = performance.now() - begin;
  current.forEach((row, i) => {
    row.setJump(answers[i]);
    if (row.stepsKey !== keys[i]) row.setSteps(null, keys[i]);
  });
  cloudView.states = answers[0].states;
  if (models[0].maze) maze = view.t > 0 ? await ask("maze", "maze", { model: view.model, sequence: view.sequence, t: view.t }) ?? maze : null;
  const steps = Promise.all(current.map((row, i) => loadSteps(row, i, queries[i], keys[i], number)));
  if (view.dt * millisecondsPerStep * models.length < QUICK) await steps;
  if (number !== opened) return;
  draw();
  byId("problem").hidden = true;
  byId("timing").textContent = exported ? "precomputed answers" :
    `answered in ${Math.round(elapsed)} ms, of which the model and its bands took ${Math.round(answers.reduce((sum, each) => sum + each.server_milliseconds, 0))} ms`;
  planScores(queries, number);
}

async function loadSequence() {
  const model = view.model, number = view.sequence, mine = opened;
  const found = await ask("sequence", "sequence", { model, sequence: number });
  const pictures = found?.frames ? await unpack(found.frames) : null;
  if (!found || mine !== opened) return;  // another model has been opened meanwhile
  sequence = { ...found, model, number, pictures };
}

async function loadSteps(row, index, values, key, number) {
  if (row.steps) return;
  const late = setTimeout(() => { row.waiting.hidden = false; }, 250);
  busy(1);
  try {
    const steps = await unpackAnswer(await ask(`steps/${index}`, "steps", values));
    if (!steps || number !== opened || row.stepsKey !== key) return;
    row.setSteps(steps, key);
    if (steps.milliseconds.steps) millisecondsPerStep = steps.milliseconds.steps / steps.evaluations;
    draw();
  } catch (error) {
    report(error);
  } finally {
    clearTimeout(late);
    row.waiting.hidden = true;
    busy(-1);
  }
}

function cancelSteps(index) {
  cancel(`steps/${index}`);
  rows[index].waiting.hidden = true;
}

// Scores of all sequences take longer than a step of a slider, so they wait until it rests.
function planScores(queries, number) {
  if (scoreTimer) busy(-1);
  clearTimeout(scoreTimer);
  busy(1);
  scoreTimer = setTimeout(async () => {
    scoreTimer = 0;
    await guarded(() => loadScores(queries, number));
    busy(-1);
  }, 120);
}

async function loadScores(queries, number) {
  if (models[0].kind === "picture") return;
  const answers = await Promise.all(queries.map((values, i) => ask(`scores/${i}`, "scores", { ...values, sequence: 0, samples: 8, edits: "" })));
  if (number !== opened || answers.some((answer) => !answer)) return;
  scores = answers;
  showScores();
}

async function guarded(work) {
  busy(1);
  try {
    await work();
  } catch (error) {
    report(error);
  } finally {
    busy(-1);
  }
}

// How many requests are under way, for tests and for readers of the page.
function busy(by) {
  busyCount += by;
  document.body.dataset.busy = busyCount;
}

function report(error) {
  const problem = byId("problem");
  problem.textContent = error instanceof RequestProblem ? error.message : `Something went wrong on this page: ${error.message}`;
  problem.hidden = false;
  byId("opening").hidden = true;
  stopPlaying();
}

// Drawing

function draw() {
  if (!models.length || sequence?.model !== view.model || !rows[0]?.jump) return;
  const picture = models[0].kind === "picture";
  const frame = picture ? null : sharedFrame(rows, view, sequence);
  rows.forEach((row) => row.draw(view, sequence, frame));
  if (picture) drawSeen(byId("seen"), sequence.pictures, view.t);
  byId("outcome").innerHTML = outcomeOf(view, models[0], rows[0].jump, sequence);
  cloudView.colour = view.colour;
  cloudView.draw();
  inputRows?.update(view, sequence);
  byId("maze-panel").hidden = !maze;
  if (maze) {
    for (const which of ["learned", "exact"]) {
      byId(`maze-${which}`).parentElement.hidden = !maze[which];
      if (maze[which]) drawMaze(byId(`maze-${which}`), maze, maze[which]);
    }
    byId("maze-exact-caption").textContent = maze.divergence === null ? "Exact belief" : `Exact belief: the learned one misses ${shortNumber(maze.divergence)} nats of it`;
  }
  showScores();
}

function showScores() {
  byId("scores-panel").hidden = models[0].kind === "picture";
  if (models[0].kind === "picture") return;
  byId("scores-dt").textContent = `${view.dt} ${view.dt === 1 ? "step" : "steps"}`;
  drawScores(byId("scores"), scoreRows(rows, scores), scores[0]?.count);
}

function showControls() {
  const [low, high] = [limits("t")[0], limits("t").at(-1)];
  Object.assign(byId("t"), { min: low, max: high, value: view.t });
  byId("t-shown").textContent = `${view.t} of ${models[0].lengths[view.sequence]}`;
  Object.assign(byId("dt"), { min: limits("dt")[0], max: limits("dt").at(-1), value: view.dt });
  Object.assign(byId("dt-number"), { max: limits("dt").at(-1), value: view.dt });
  Object.assign(byId("sequence"), { max: models[0].lengths.length, value: view.sequence + 1 });
  byId("samples").value = view.samples;
  byId("channel").value = view.channel;
  byId("colour").value = view.colour;
  byId("story").innerHTML = storyOf(view, models[0]);
}

function prepareControls(first, second) {
  document.title = `${first.title}, tdvae explorer`;
  byId("title").textContent = first.title;
  byId("about").textContent = second ? `${first.about} A is ${first.name}, B is ${second.name}, both on the sequences of A.` : first.about;
  byId("model").value = first.name;
  const { data } = gallery.models.find((each) => each.name === first.name);
  const others = gallery.models.filter((each) => each.name !== first.name && each.data === data && (!exported || [first.name, each.name].join() === exported.pair));
  byId("compare").replaceChildren(new Option("nothing", ""), ...others.map((each) => new Option(each.name, each.name)));
  byId("compare").value = second?.name ?? "";
  byId("compare-label").hidden = others.length === 0;
  byId("dt-label").innerHTML = first.dt_given ? "Jump ahead by <b>δt</b> steps" : "Number of jumps";
  byId("channel-control").hidden = first.channels.length < 2 || Boolean(exported);
  byId("channel").replaceChildren(...first.channels.map((name, i) => new Option(name, i)));
  byId("seen-panel").hidden = first.kind !== "picture";
  maze = null;
  byId("inputs-panel").hidden = first.inputs.length === 0 || Boolean(exported);
  inputRows = first.inputs.length && !exported ? new InputRows(byId("inputs"), first, (edits) => change({ edits })) : null;
  for (const id of ["samples", "again"]) byId(id).disabled = Boolean(exported);
  byId("legend").hidden = first.kind === "picture";
  drawLegend(first);
}

function drawLegend(model) {
  const other = model.exact ? `${model.exact}: the best that is possible` : model.combination;
  byId("legend").replaceChildren(...legendItems(other, true).map(([text, paint]) => {
    const item = document.createElement("li"), canvas = document.createElement("canvas");
    item.append(canvas, text);
    requestAnimationFrame(() => paint(prepareCanvas(canvas).ctx));
    return item;
  }));
}

// Controls

function connectControls() {
  const numbers = { t: "t", dt: "dt", "dt-number": "dt", samples: "samples", channel: "channel" };
  for (const [id, name] of Object.entries(numbers)) {
    const event = byId(id).type === "range" ? "input" : "change";
    byId(id).addEventListener(event, () => { if (name === "t") stopPlaying(); change({ [name]: Number(byId(id).value) }); });
  }
  byId("sequence").addEventListener("change", () => change({ sequence: Number(byId("sequence").value) - 1 }));
  byId("previous").addEventListener("click", () => move("sequence", -1));
  byId("next").addEventListener("click", () => move("sequence", 1));
  byId("again").addEventListener("click", () => change({ seed: (view.seed + 1) % 10000 }));
  byId("play").addEventListener("click", () => (playing ? stopPlaying() : play()));
  byId("model").addEventListener("change", () => guarded(() => open(byId("model").value, {})));
  byId("compare").addEventListener("change", () => guarded(() => open(view.model, { ...view, with: byId("compare").value })));
  byId("colour").addEventListener("change", () => { view.colour = byId("colour").value; writeLink(view); draw(); });
  byId("theme").addEventListener("click", () => { setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"); draw(); });
  byId("keys").addEventListener("click", () => { const shown = byId("key-help").toggleAttribute("hidden"); byId("keys").setAttribute("aria-expanded", String(!shown)); });
  byId("home").addEventListener("click", (event) => { event.preventDefault(); history.pushState(null, "", "#"); gallery.first = null; guarded(follow); });
  byId("copy-link").addEventListener("click", copyLink);
  const name = () => `${view.model}-sequence-${view.sequence + 1}-t-${view.t}-dt-${view.dt}`;
  byId("save-png").addEventListener("click", () => models.length && savePng(byId("title").textContent, byId("story").textContent, [...document.querySelectorAll("#explorer .panel canvas")], name()));
  byId("save-json").addEventListener("click", () => models.length && saveJson({ view, models, sequence, jumps: rows.map((row) => row.jump), steps: rows.map((row) => row.steps), scores }, name()));
  addEventListener("hashchange", () => guarded(follow));
  addEventListener("resize", draw);
  document.addEventListener("keydown", pressed);
  setInterval(() => {
    if (document.hidden || models[0]?.kind !== "picture" || !sequence) return;
    for (const row of rows) if (row.steps) { row.moment += 1; row.draw(view, sequence, null); }
  }, 450);
}

function pressed(event) {
  const typing = event.target.matches?.("input, select, textarea");
  if (!models.length || event.ctrlKey || event.metaKey || event.altKey || typing) return;
  const far = event.shiftKey ? 10 : 1;
  const actions = {
    ArrowLeft: () => { stopPlaying(); move("t", -far); }, ArrowRight: () => { stopPlaying(); move("t", far); },
    ArrowUp: () => move("dt", far), ArrowDown: () => move("dt", -far),
    "[": () => move("sequence", -1), "]": () => move("sequence", 1),
    r: () => { if (!exported) change({ seed: (view.seed + 1) % 10000 }); }, " ": () => (playing ? stopPlaying() : play()),
  };
  if (event.key === " " && event.target.matches?.("button, a")) return;
  if (!(event.key in actions)) return;
  event.preventDefault();
  actions[event.key]();
}

async function play() {
  playing = true;
  byId("play").textContent = "❚❚";
  byId("play").setAttribute("aria-label", "Pause");
  if (view.t >= limits("t").at(-1)) await change({ t: 0 });
  const mine = opened;
  while (playing && mine === opened && view.t < limits("t").at(-1)) {
    await move("t", 1);
    await new Promise((resolve) => setTimeout(resolve, models[0].kind === "picture" ? 400 : 90));
  }
  stopPlaying();
}

function stopPlaying() {
  playing = false;
  byId("play").textContent = "▶";
  byId("play").setAttribute("aria-label", "Play: let the observations come in");
}

async function copyLink() {
  writeLink(view);
  const button = byId("copy-link");
  try {
    await navigator.clipboard.writeText(location.href);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Copy the address above";
  }
  setTimeout(() => { button.textContent = "Copy link"; }, 1500);
}

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  try { localStorage.setItem("theme", name); } catch { /* a page from a file may not store anything */ }
  if (models.length) drawLegend(models[0]);
}

start();
