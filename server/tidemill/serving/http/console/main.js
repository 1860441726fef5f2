// The page: asks the server every two seconds what it serves and how it fares, and shows the model that was chosen.

import { Chart, duration, number } from "./chart.js";
import { build, encode, show } from "./form.js";
import { draw } from "./graph.js";
import { mean, parse, quantile, rise, sum } from "./metrics.js";
import { build as buildTalk } from "./talk.js";

const PERIOD = 2000;
const KEY = "tidemill-key";
const at = (id) => document.getElementById(id);
const state = { models: [], chosen: null, before: null, beforeTime: 0, charts: null, shown: null, base: null, busy: false };

async function ask(path, options = {}) {
  const key = sessionStorage.getItem(KEY);
  const headers = { ...(options.headers || {}), ...(key ? { Authorization: `Bearer ${key}` } : {}) };
  const response = await fetch(path, { ...options, headers, cache: "no-store" });
  if (response.ok) return response;
  const text = await response.text();
  let reason = text;
  try { reason = JSON.parse(text).error?.message || JSON.parse(text).error || text; } catch { /* not JSON: shown as it is */ }
  const error = new Error(`${response.status}: ${reason}`);
  error.status = response.status;
  throw error;
}

const json = async (path, options) => (await ask(path, options)).json();

function tell(fault) {
  at("fault").hidden = !fault;
  if (at("fault").textContent !== fault) at("fault").textContent = fault;
}

function badge(element, text, kind) {
  element.textContent = text;
  element.className = `badge ${kind}`;
}

const kindOf = (name) => ({ READY: "good", FAILED: "bad", UNAVAILABLE: "bad" })[name] || "";
const idOf = (model) => `${model.name}/${model.version || ""}`;
const pathOf = (model) => `v2/models/${encodeURIComponent(model.name)}${model.version ? `/versions/${model.version}` : ""}`;
const labelsOf = (model) => ({ model: model.name, version: model.version || "" });

async function refresh() {
  const [index, text, ready] = await Promise.all([
    json("v2/repository/index", { method: "POST" }),
    ask("metrics").then((response) => response.text()),
    ask("v2/health/ready").then(() => true, (error) => { if (error.status === 503) return false; throw error; }),
  ]);
  const now = performance.now();
  const samples = parse(text);
  badge(at("server-state"), ready ? "ready" : "not ready", ready ? "good" : "bad");
  state.models = index;
  if (state.before) figures(samples, (now - state.beforeTime) / 1000);
  list(samples, (now - state.beforeTime) / 1000);
  state.before = samples;
  state.beforeTime = now;
  if (!state.chosen && index.length) choose(index.find((model) => model.state === "READY") || index[0], false);
  if (state.chosen) await follow();
}

function figures(samples, seconds) {
  const rate = (wanted) => rise(state.before, samples, "tidemill_requests_total", wanted) / seconds;
  at("total-rate").textContent = number(rate({}));
  at("total-failed").textContent = number(rate({ code: (code) => code !== "ok" }));
  at("total-inflight").textContent = sum(samples, "tidemill_inflight_requests").toFixed(0);
  if (!state.chosen || !state.charts) return;
  const wanted = labelsOf(state.chosen);
  // What runs in another model's instances is counted there.
  const runs = state.base ? { ...wanted, model: state.base } : wanted;
  const between = (measure, name) => measure(state.before, samples, name, runs);
  const latency = (share) => quantile(share, state.before, samples, "tidemill_request_duration_seconds", wanted);
  state.charts.rate.add(rate(wanted), rate({ ...wanted, code: (code) => code !== "ok" }));
  state.charts.latency.add(latency(0.5), latency(0.99));
  if (state.texts) {
    const texts = (name) => sum(samples, `tidemill_generation_${name}`, wanted);
    const made = { ...wanted, kind: "generated" };
    state.charts.tokens.add(rise(state.before, samples, "tidemill_generation_tokens_total", made) / seconds);
    state.charts.rows.add(between(mean, "tidemill_generation_step_rows"));
    state.charts.first.add(between(mean, "tidemill_generation_first_token_seconds"), between(mean, "tidemill_generation_token_seconds"));
    state.charts.texts.add(texts("running"), texts("waiting"));
    return;
  }
  state.charts.batch.add(between(mean, "tidemill_batch_size"));
  state.charts.queue.add(between(mean, "tidemill_queue_duration_seconds"), between(mean, "tidemill_compute_infer_duration_seconds"));
  state.charts.depth.add(sum(samples, "tidemill_queue_depth", runs));
}

function list(samples, seconds) {
  const wanted = at("filter").value.toLowerCase();
  const models = state.models.filter((model) => model.name.toLowerCase().includes(wanted));
  at("no-models").hidden = state.models.length > 0;
  const rows = at("model-list");
  const known = new Map([...rows.children].map((row) => [row.dataset.id, row]));
  models.forEach((model, place) => {
    const row = known.get(idOf(model)) || entry(model);
    known.delete(idOf(model));
    // A row that stays where it is keeps the keyboard's focus.
    if (rows.children[place] !== row) rows.insertBefore(row, rows.children[place] || null);
    const button = row.firstElementChild;
    button.setAttribute("aria-current", String(state.chosen !== null && idOf(state.chosen) === idOf(model)));
    badge(button.children[1], model.state, kindOf(model.state));
    const rate = state.before ? rise(state.before, samples, "tidemill_requests_total", labelsOf(model)) / seconds : 0;
    button.children[2].textContent = `version ${model.version || "–"} · ${number(rate)} requests/s`;
  });
  for (const row of known.values()) row.remove();
}

function entry(model) {
  const row = document.createElement("li");
  row.dataset.id = idOf(model);
  const button = Object.assign(document.createElement("button"), { type: "button" });
  for (const kind of ["name", "badge", "rate"]) button.append(Object.assign(document.createElement("span"), { className: kind }));
  button.firstElementChild.textContent = model.name;
  button.onclick = () => choose(model, true);
  row.append(button);
  return row;
}

function choose(model, focus) {
  state.chosen = model;
  state.shown = state.base = null;
  at("model-title").textContent = `${model.name}${model.version ? ` version ${model.version}` : ""}`;
  at("model-body").hidden = false;
  at("answer").replaceChildren();
  for (const id of ["signature", "parameters", "try-form", "graph", "model-facts"]) at(id).replaceChildren();
  chart(false);
  if (focus) at("details").focus();
  follow().catch((error) => tell(error.message));
}

// A model that makes texts has other figures than one that answers once.
function chart(texts) {
  state.texts = texts;
  state.charts = {
    rate: new Chart("Requests per second", number, ["all", "failed"]),
    latency: new Chart("Time to answer", duration, ["median", "99 %"]),
    ...(texts ? {
      tokens: new Chart("Tokens per second", number),
      rows: new Chart("Texts of a step, mean", number),
      first: new Chart("Tokens come, mean", duration, ["the first after", "the next after"]),
      texts: new Chart("Texts", number, ["running", "waiting"]),
    } : {
      batch: new Chart("Rows of a batch, mean", number),
      queue: new Chart("A request's way, mean", duration, ["in the queue", "in the model"]),
      depth: new Chart("Waiting requests", number),
    }),
  };
  at("charts").replaceChildren(...Object.values(state.charts).map((one) => one.element));
}

// What is asked only when the model, or its state, is another than before.
async function follow() {
  const model = state.models.find((one) => idOf(one) === idOf(state.chosen)) || { ...state.chosen, state: "gone", reason: "" };
  const now = `${idOf(model)} ${model.state}`;
  at("model-reason").hidden = !model.reason;
  at("model-reason").textContent = model.reason ? `${model.state}: ${model.reason}` : "";
  if (state.shown === now) return;
  state.shown = now;
  if (model.state !== "READY") return;
  const [metadata, config] = await Promise.all([json(pathOf(model)), json(`${pathOf(model)}/config`)]);
  if (state.shown !== now) return;
  signature(metadata, config);
  if (metadata.platform === "tidemill_generation") generator(model, config);
  else build(at("try-form"), metadata, (read) => send(model, read));
  const outline = await json(`${pathOf(model)}/graph`).catch((error) => ({ error }));
  if (state.shown !== now) return;
  if (outline.error) at("graph").textContent = outline.error.message;
  else draw(at("graph"), outline);
}

function generator(model, config) {
  if (!state.texts) chart(true);
  const talks = config.parameters?.["tidemill.talks"]?.string_value === "yes";
  buildTalk(at("try-form"), at("answer"), talks, ({ prompt, ...asked }, signal) => ask(
    talks ? "v1/chat/completions" : "v1/completions",
    {
      method: "POST",
      signal,
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({
        model: model.name, stream: true, stream_options: { include_usage: true }, ...asked,
        ...(talks ? { messages: [{ role: "user", content: prompt }] } : { prompt }),
      }),
    },
  ));
}

function facts(place, pairs) {
  place.replaceChildren(...pairs.map(([name, value]) => {
    const pair = document.createElement("div");
    pair.append(Object.assign(document.createElement("dt"), { textContent: name }), Object.assign(document.createElement("dd"), { textContent: value }));
    return pair;
  }));
}

function row(...cells) {
  const line = document.createElement("tr");
  line.append(...cells.map((text) => Object.assign(document.createElement("td"), { textContent: text })));
  return line;
}

function signature(metadata, config) {
  const parameters = Object.entries(config.parameters || {}).map(([name, value]) => [name.replace(/^tidemill\./, ""), value.string_value]);
  const named = Object.fromEntries(parameters);
  state.base = named.base || null;
  const instances = (config.instance_group || []).reduce((total, group) => total + group.count, 0);
  facts(at("model-facts"), [
    ["runs on", named.providers || (config.instance_group?.[0]?.kind || "").replace("KIND_", "") || "–"],
    ["instances", `${instances || 1}${named.threads ? ` × ${named.threads} threads` : ""}`],
    named.slots ? ["texts at a time", `${named.slots} of ${named.capacity} tokens`]
      : ["largest batch", config.max_batch_size || "not batched"],
    ...(named.base ? [["batched with", named.base]] : []),
    ["platform", config.platform || config.backend || "–"],
  ]);
  const rows = (specs, direction) => specs.map((spec) =>
    row(spec.name, direction, spec.datatype, spec.shape.length ? spec.shape.map((size) => (size < 0 ? "any" : size)).join(" × ") : "one value"));
  at("signature").replaceChildren(...rows(metadata.inputs, "in"), ...rows(metadata.outputs, "out"));
  at("parameters").replaceChildren(...parameters.map(([name, value]) => row(name, value)));
}

async function send(model, read) {
  const begun = performance.now();
  try {
    const { body, headers } = encode(await read());
    const answer = await json(`${pathOf(model)}/infer`, { method: "POST", body, headers });
    show(at("answer"), { answer, milliseconds: performance.now() - begun });
  } catch (error) {
    show(at("answer"), { error: error.message });
  }
}

function tabs() {
  const all = [...at("tabs").children];
  const open = (tab) => {
    for (const one of all) {
      one.setAttribute("aria-selected", String(one === tab));
      one.tabIndex = one === tab ? 0 : -1;
      at(one.getAttribute("aria-controls")).hidden = one !== tab;
    }
  };
  all.forEach((tab, place) => {
    tab.onclick = () => open(tab);
    tab.onkeydown = (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = all[(place + step + all.length) % all.length];
      open(next);
      next.focus();
    };
  });
}

async function turn() {
  if (state.busy || document.hidden) return;
  state.busy = true;
  try {
    await refresh();
    tell("");
  } catch (error) {
    if (error.status === 401 || error.status === 403) tell("The server wants a key, or another one. Give it above.");
    else tell(error.status ? error.message : "The server does not answer; trying again.");
    if (!error.status) badge(at("server-state"), "no answer", "bad");
  } finally {
    state.busy = false;
  }
}

at("key").value = sessionStorage.getItem(KEY) || "";
at("key-form").onsubmit = (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, at("key").value);
  state.shown = null;
  turn();
};
at("filter").oninput = () => state.before && list(state.before, 1);
tabs();
json("v2").then((server) => { at("server-version").textContent = server.version; }).catch(() => {});
turn();
setInterval(turn, PERIOD);
