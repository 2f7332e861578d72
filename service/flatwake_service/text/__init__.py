"""Text: tokens, streams, stop strings and chat templates.

tokenizer = load_tokenizer(checkpoint)
tokenizer.encode("Hello"), tokenizer.decode(ids), tokenizer.eos_ids, tokenizer.size
stream = TextStream(tokenizer, stop=["\\n\\n"])
stream.push([id]), stream.finish(), stream.stop
"""

from __future__ import annotations

from flatwake_service.text.detokenizer import Detokenizer
from flatwake_service.text.stops import StopStrings
from flatwake_service.text.stream import TextStream
from flatwake_service.text.template import ChatTemplate, load_template
from flatwake_service.text.tokenizer import Tokenizer, check_text, load_tokenizer

__all__ = [
    "ChatTemplate",
    "Detokenizer",
    "StopStrings",
    "TextStream",
    "Tokenizer",
    "check_text",
    "load_template",
    "load_tokenizer",
]
