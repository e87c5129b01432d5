// Requests: the newest of a kind wins. An exported page has its answers in files instead of a server.

const pageId = Math.random().toString(36).slice(2, 12);
const inFlight = new Map();
const token = new URLSearchParams(location.search).get("token");
const loadedFiles = new Map();

export const exported = window.tdvaeExport || null;

export class RequestProblem extends Error {}

// The answer, or null if a newer request of the same slot has taken its place.
export async function ask(slot, view, values) {
  inFlight.get(slot)?.abort();
  const controller = new AbortController();
  inFlight.set(slot, controller);
  try {
    const answer = exported ? await fromFile(view, values) : await fromServer(view, values, controller.signal);
    return inFlight.get(slot) === controller ? answer : null;
  } catch (error) {
    if (error.name === "AbortError" || inFlight.get(slot) !== controller) return null;
    throw error;
  } finally {
    if (inFlight.get(slot) === controller) inFlight.delete(slot);
  }
}

export function cancel(slot) {
  inFlight.get(slot)?.abort();
  inFlight.delete(slot);
}

async function fromServer(view, values, signal) {
  const query = new URLSearchParams(values);
  if (view !== "gallery") query.set("page", pageId);
  let response;
  try {
    response = await fetch(`api/${view}?${query}`, { signal, headers: token ? { "X-Explorer-Token": token } : {} });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new RequestProblem("The explorer does not answer. Is `tdvae explore` still running?");
  }
  if (response.status === 409) return null;
  const content = await response.json().catch(() => ({ error: `the server answered with status ${response.status}` }));
  if (!response.ok) throw new RequestProblem(content.error);
  return content;
}

// The key of an answer is its query, completed and sorted, as `requests.text_of` writes it.
function keyOf(view, values) {
  const full = { sequence: 0, t: 0, dt: 1, samples: 8, channel: 0, seed: 0, edits: "", of: values.model, ...values };
  return `${view}?${Object.keys(full).sort().map((name) => `${name}=${full[name]}`).join("&")}`;
}

async function fromFile(view, values) {
  if (view === "gallery") return exported.gallery;
  const key = keyOf(view, values), shared = ["model", "cloud", "scores"].includes(view);
  const of = values.of ?? values.model, file = shared ? `data/${of}.js` : `data/${of}-${values.sequence}.js`;
  if (!loadedFiles.has(file)) loadedFiles.set(file, loadScript(file));
  await loadedFiles.get(file);
  if (!exported.answers[key]) throw new RequestProblem("This page was exported without this view; `tdvae explore` has all of them.");
  return structuredClone(exported.answers[key]);
}

function loadScript(file) {
  return new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = file;
    script.onload = resolve;
    script.onerror = () => reject(new RequestProblem(`${file} is missing beside this page`));
    document.head.append(script);
  });
}
