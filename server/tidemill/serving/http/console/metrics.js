// Prometheus' text read into samples, and what two scrapes say of the time between them.

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)$/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;

export function parse(text) {
  const samples = new Map();
  for (const line of text.split("\n")) {
    const found = line.startsWith("#") ? null : LINE.exec(line);
    if (!found) continue;
    const labels = {};
    for (const [, name, value] of (found[2] || "").matchAll(LABEL)) labels[name] = value.replace(/\\(.)/g, "$1");
    if (!samples.has(found[1])) samples.set(found[1], []);
    samples.get(found[1]).push({ labels, value: Number(found[3]) });
  }
  return samples;
}

function matches(labels, wanted) {
  return Object.entries(wanted).every(([name, value]) =>
    typeof value === "function" ? value(labels[name]) : labels[name] === value);
}

export function sum(samples, name, wanted = {}) {
  let total = 0;
  for (const sample of samples.get(name) || []) if (matches(sample.labels, wanted)) total += sample.value;
  return total;
}

// What a counter rose by; a restarted server begins again at 0.
export function rise(before, after, name, wanted) {
  const [old, now] = [sum(before, name, wanted), sum(after, name, wanted)];
  return now >= old ? now - old : now;
}

export function mean(before, after, name, wanted) {
  const count = rise(before, after, `${name}_count`, wanted);
  return count ? rise(before, after, `${name}_sum`, wanted) / count : null;
}

// Linear within the bucket, as histogram_quantile does it.
export function quantile(share, before, after, name, wanted) {
  const bounds = [...new Set((after.get(`${name}_bucket`) || []).map((s) => s.labels.le))]
    .map((le) => ({ le, bound: le === "+Inf" ? Infinity : Number(le) })).sort((a, b) => a.bound - b.bound);
  const counts = bounds.map(({ le }) => rise(before, after, `${name}_bucket`, { ...wanted, le }));
  const total = counts.at(-1);
  if (!total) return null;
  const rank = share * total;
  const at = counts.findIndex((count) => count >= rank);
  const low = at ? bounds[at - 1].bound : 0;
  if (bounds[at].bound === Infinity) return low;
  const below = at ? counts[at - 1] : 0;
  return low + (bounds[at].bound - low) * ((rank - below) / Math.max(counts[at] - below, 1e-9));
}
