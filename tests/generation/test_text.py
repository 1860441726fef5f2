"""Text that comes in pieces: characters stay whole, stop texts are found wherever they are cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from byte_tokenizer import END, byte_tokenizer
from hypothesis import given
from hypothesis import strategies as st

from tidemill.errors import ConfigError, InvalidArgument
from tidemill.generation.chat import ChatTemplate
from tidemill.generation.stops import StopFinder
from tidemill.generation.tokenizer import TextTokenizer

BYTES = byte_tokenizer()


def written(tokens: tuple[int, ...], tokenizer: TextTokenizer = BYTES) -> list[str]:
    writer = tokenizer.writer()
    return [*(writer.feed(token) for token in tokens), writer.rest()]


@given(st.text())
def test_text_comes_in_whole_characters(text: str) -> None:
    pieces = written(BYTES.encode(text))
    assert "".join(pieces) == text
    assert all("\ufffd" not in piece for piece in pieces) or "\ufffd" in text


def test_a_character_that_never_becomes_whole() -> None:
    tokens = BYTES.encode("aé")
    assert "".join(written(tokens[:-1])) == "a\ufffd"


def test_special_tokens_are_not_text() -> None:
    assert "".join(written((*BYTES.encode("a"), END, *BYTES.encode("b")))) == "ab"
    assert BYTES.encode("<end>") == (END,)
    assert BYTES.piece(END) == b"<end>"
    assert b"".join(BYTES.piece(token) for token in BYTES.encode("é😀")) == "é😀".encode()


@given(st.text("ab\n", max_size=30), st.lists(st.text("ab\n", min_size=1, max_size=4), max_size=3), st.data())
def test_stops_are_found_wherever_the_text_is_cut(text: str, stops: list[str], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[a:b] for a, b in pairwise([0, *cuts, len(text)])]
    finder, out, stopped = StopFinder(stops), "", False
    for piece in pieces:
        certain, stopped = finder.feed(piece)
        out += certain
        if stopped:
            break
    else:
        out += finder.rest()
    ends = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text]
    assert stopped == bool(ends)
    if ends:
        # The one that is whole first ends the text; cut pieces may show more than one at once.
        assert text.startswith(out)
        assert not any(stop in out for stop in stops)
        assert len(out) <= min(start for _, start in ends) or len(out) == min(ends)[1]
    else:
        assert out == text


def test_text_without_stops_is_not_held_back() -> None:
    assert StopFinder(()).feed("abc") == ("abc", False)
    finder = StopFinder(["\n\n"])
    assert [finder.feed(piece)[0] for piece in ("a\n", "b\n", "\n")] == ["a", "\nb", ""]


TALK = """{% for m in messages %}{{ '<' + m['role'] + '>' + m['content'] + '\n' }}{% endfor %}\
{% if add_generation_prompt %}<assistant>{% endif %}"""


def test_a_talk_is_written_as_its_template_says() -> None:
    template = ChatTemplate(TALK)
    assert template.render([{"role": "user", "content": "Hi"}]) == "<user>Hi\n<assistant>"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ raise_exception('no system here') }}", "no system here"),
        ("{{ messages[0].content.nothing.more }}", "refuses"),
        ("{{ ''.__class__.__mro__ }}", "refuses"),
        ("{{ messages.append(1) }}", "refuses"),
        ("{% for a in range(99999999) %}x{% endfor %}", "refuses"),
        ("{% for a in range(99999) %}{% for b in range(99999) %}xxxxxxxx{% endfor %}{% endfor %}", "too long"),
    ],
)
def test_templates_are_kept_in_a_sandbox(source: str, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        ChatTemplate(source).render([{"role": "user", "content": "Hi"}])


def test_templates_that_are_none() -> None:
    with pytest.raises(ConfigError, match="Jinja"):
        ChatTemplate("{% for %}")
    with pytest.raises(ConfigError, match="at most"):
        ChatTemplate("x" * 300_000)
