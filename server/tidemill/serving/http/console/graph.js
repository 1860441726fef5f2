// The nodes of a graph in order; what a function holds unfolds where it is called.

function flow(node) {
  const text = `${node.inputs.filter(Boolean).join(", ")} → ${node.outputs.filter(Boolean).join(", ")}`;
  return Object.assign(document.createElement("span"), { className: "flow", textContent: text.length > 160 ? `${text.slice(0, 160)}…` : text });
}

function line(node, functions) {
  const callee = functions.get(`${node.domain}\n${node.op}`);
  const name = document.createElement("b");
  name.textContent = node.op;
  const label = node.name && node.name !== node.op ? ` ${node.name} ` : " ";
  if (!callee) {
    const row = Object.assign(document.createElement("div"), { className: "op" });
    row.append(name, label, flow(node));
    return row;
  }
  const fold = document.createElement("details");
  const head = document.createElement("summary");
  head.append(name, `${label}(${callee.nodes.length} nodes, shared by ${callee.calls}) `, flow(node));
  fold.append(head);
  // Filled when it is opened: a deep model unfolded at once would be a page of its own.
  fold.addEventListener("toggle", () => {
    if (fold.open && fold.childElementCount === 1) fold.append(...callee.nodes.map((inner) => line(inner, functions)));
  });
  return fold;
}

export function draw(place, outline) {
  const functions = new Map(outline.functions.map((one) => [`${one.domain}\n${one.name}`, { ...one, calls: 0 }]));
  for (const node of [...outline.nodes, ...outline.functions.flatMap((one) => one.nodes)]) {
    const callee = functions.get(`${node.domain}\n${node.op}`);
    if (callee) callee.calls += 1;
  }
  const title = document.createElement("p");
  const counts = [`${outline.nodes.length}${outline.truncated ? "+" : ""} nodes`, `${outline.functions.length} functions`, `${outline.weights.length} weights`];
  title.textContent = `${counts.join(", ")}. ${outline.inputs.join(", ")} → ${outline.outputs.join(", ")}`;
  place.replaceChildren(title, ...outline.nodes.map((node) => line(node, functions)));
}
