// A prompt, and the text that a model makes of it as it comes.

function field(text, control) {
  const label = document.createElement("label");
  label.append(text, control);
  return label;
}

function numberInput(value, attributes) {
  return Object.assign(document.createElement("input"), { type: "number", value, ...attributes });
}

// `open` asks the server and gives the answer's body; `talks` says whether the model knows turns.
export function build(form, place, talks, open) {
  const prompt = Object.assign(document.createElement("textarea"), {
    value: talks ? "What is a tide mill?" : "A tide mill is", rows: 4, required: true,
  });
  const most = numberInput(200, { min: 1, step: 1 });
  const temperature = numberInput(0.7, { min: 0, max: 2, step: 0.1 });
  const group = document.createElement("fieldset");
  group.append(Object.assign(document.createElement("legend"), { textContent: talks ? "Say something" : "Begin a text" }),
    field("prompt", prompt), field("tokens at most", most), field("temperature (0 always takes the most probable)", temperature));
  const button = Object.assign(document.createElement("button"), { textContent: "Generate", className: "main" });
  form.replaceChildren(group, button);
  let stop = null;
  form.onsubmit = async (event) => {
    event.preventDefault();
    if (stop) { stop.abort(); return; }
    stop = new AbortController();
    button.textContent = "Stop";
    const asked = { prompt: prompt.value, max_tokens: Number(most.value), temperature: Number(temperature.value) };
    try { await write(place, () => open(asked, stop.signal)); } finally {
      stop = null;
      button.textContent = "Generate";
    }
  };
}

async function write(place, open) {
  const title = document.createElement("p");
  const text = Object.assign(document.createElement("pre"), { className: "text" });
  place.replaceChildren(title, text);
  title.textContent = "Reading the prompt …";
  const begun = performance.now();
  let first = 0;
  let usage = null;
  try {
    for await (const chunk of events((await open()).body)) {
      if (chunk.error) throw new Error(chunk.error.message);
      const added = chunk.choices.map((choice) => choice.delta?.content ?? choice.text ?? "").join("");
      if (added && !first) first = performance.now();
      text.append(added);
      if (added) title.textContent = `First token after ${(first - begun).toFixed(0)} ms`;
      usage = chunk.usage || usage;
    }
    if (usage && first) {
      const seconds = (performance.now() - first) / 1000;
      const rate = usage.completion_tokens > 1 ? `, ${((usage.completion_tokens - 1) / seconds).toFixed(1)} tokens a second` : "";
      title.textContent = `First token after ${(first - begun).toFixed(0)} ms${rate}; ${usage.completion_tokens} tokens, `
        + `${usage.prompt_tokens} in the prompt`;
    }
  } catch (error) {
    title.className = error.name === "AbortError" ? "" : "bad";
    title.textContent = error.name === "AbortError" ? "Stopped" : error.message;
  }
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (held + value).split("\n\n");
    held = parts.pop();
    for (const part of parts) {
      const data = part.replace(/^data: /, "");
      if (data !== "[DONE]") yield JSON.parse(data);
    }
  }
}
