// A form made from a model's signature, and the answer to what was sent with it.

const WHOLE = /^U?INT/;

function example(input) {
  const shape = input.shape.map((size, axis) => (size >= 0 ? size : axis === 0 ? 1 : 4));
  const count = shape.reduce((product, size) => product * size, 1);
  const one = input.datatype === "BYTES" ? "The cat sat on the mat." : input.datatype === "BOOL" ? true
    : WHOLE.test(input.datatype) ? 1 : 0.5;
  return { shape, data: count <= 4096 ? JSON.stringify(Array(count).fill(one)) : "" };
}

function field(text, control) {
  const label = document.createElement("label");
  label.append(text, control);
  return label;
}

export function build(form, metadata, send) {
  const inputs = metadata.inputs.map((input) => {
    const group = document.createElement("fieldset");
    group.append(Object.assign(document.createElement("legend"), { textContent: `${input.name}: ${input.datatype}` }));
    const given = example(input);
    const shape = Object.assign(document.createElement("input"), { value: given.shape.join(", ") });
    const data = Object.assign(document.createElement("textarea"), { value: given.data, spellcheck: false });
    if (!given.data) data.placeholder = "too many values for an example; paste a JSON list, or choose a file";
    group.append(field(`shape (the model says ${input.shape.map((s) => (s < 0 ? "any" : s)).join(" × ") || "one value"})`, shape),
      field("values as a JSON list", data));
    let file = null;
    if (input.datatype === "BYTES") {
      file = Object.assign(document.createElement("input"), { type: "file" });
      group.append(field("or a file, sent as one element", file));
    }
    return { input, group, shape, data, file };
  });
  const button = Object.assign(document.createElement("button"), { textContent: "Send", className: "main" });
  form.replaceChildren(...inputs.map((one) => one.group), button);
  form.onsubmit = async (event) => {
    event.preventDefault();
    button.disabled = true;
    try { await send(() => Promise.all(inputs.map(read))); } finally { button.disabled = false; }
  };
}

async function read({ input, shape, data, file }) {
  if (file?.files.length) return { name: input.name, datatype: input.datatype, shape: [1], bytes: await file.files[0].arrayBuffer() };
  const sizes = shape.value.split(/[\s,x×]+/).filter(Boolean).map(Number);
  let values;
  try { values = JSON.parse(data.value); } catch (error) { throw new Error(`${input.name}: not a JSON list (${error.message})`); }
  return { name: input.name, datatype: input.datatype, shape: sizes, data: values };
}

// JSON, or the protocol's binary form as soon as one input is a file.
export function encode(inputs) {
  const header = { inputs: [], parameters: {} };
  const parts = [];
  for (const { bytes, ...input } of inputs) {
    if (bytes) {
      const length = new Uint8Array(4);
      new DataView(length.buffer).setUint32(0, bytes.byteLength, true);
      parts.push(length, bytes);
      input.parameters = { binary_data_size: bytes.byteLength + 4 };
    }
    header.inputs.push(input);
  }
  const json = JSON.stringify(header);
  if (!parts.length) return { body: json, headers: { "Content-Type": "application/json" } };
  const start = new TextEncoder().encode(json);
  return {
    body: new Blob([start, ...parts]),
    headers: { "Content-Type": "application/octet-stream", "Inference-Header-Content-Length": String(start.length) },
  };
}

function shown(output) {
  const data = output.data;
  const head = data.length > 64 ? `${JSON.stringify(data.slice(0, 64)).slice(0, -1)}, … ${data.length - 64} more]` : JSON.stringify(data);
  return `${output.name}: ${output.datatype} [${output.shape.join(", ")}]\n${head}`;
}

export function show(place, outcome) {
  const title = document.createElement("p");
  if (outcome.error) {
    title.className = "bad";
    title.textContent = outcome.error;
    place.replaceChildren(title);
    return;
  }
  title.textContent = `Answered in ${outcome.milliseconds.toFixed(1)} ms by version ${outcome.answer.model_version}`;
  const text = document.createElement("pre");
  text.textContent = outcome.answer.outputs.map(shown).join("\n\n");
  place.replaceChildren(title, text);
}
