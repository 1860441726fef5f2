"""Which nodes and weights of a body matter: those that its outputs depend on."""

from __future__ import annotations

from tidemill.graph.ir import Body, Node, Span

__all__ = ["live"]


def live(body: Body) -> Body:
    """The body without nodes whose results nobody uses; inputs and weights all stay in the signature."""
    needed = set(body.outputs)
    keep: set[Node] = set()
    for node in reversed([*body.prologue, *body.nodes]):
        if needed.intersection(node.outputs):
            keep.add(node)
            needed.update(node.reads())
    kept_before = [0]
    for node in body.nodes:
        kept_before.append(kept_before[-1] + (node in keep))
    return Body(
        inputs=body.inputs,
        weights={name: edge for name, edge in body.weights.items() if edge in needed},
        constants=body.constants,
        prologue=[node for node in body.prologue if node in keep],
        nodes=[node for node in body.nodes if node in keep],
        outputs=body.outputs,
        spans=[
            Span(span.path, span.title, kept_before[span.start], kept_before[span.end], span.arguments)
            for span in body.spans
        ],
    )
