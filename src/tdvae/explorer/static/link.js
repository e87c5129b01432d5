// The view in the address, so that a link restores it.

const NAMES = ["model", "with", "sequence", "t", "dt", "samples", "channel", "seed", "edits", "colour"];
const NUMBERS = new Set(["sequence", "t", "dt", "samples", "channel", "seed"]);

export function readLink() {
  const found = {};
  for (const [name, text] of new URLSearchParams(location.hash.slice(1))) {
    if (!NAMES.includes(name)) continue;
    if (!NUMBERS.has(name)) found[name] = text.slice(0, 500);
    else if (/^\d{1,6}$/.test(text)) found[name] = Number(text);
  }
  return found;
}

export function writeLink(view) {
  const values = new URLSearchParams();
  for (const name of NAMES) if (view[name] !== "" && view[name] !== null && view[name] !== undefined) values.set(name, view[name]);
  const hash = `#${values}`;
  if (location.hash !== hash) history.replaceState(null, "", hash);
}
