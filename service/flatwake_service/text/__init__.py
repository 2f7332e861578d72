"""Text: tokens, streams, stop strings and chat templates.

tokenizer = load_tokenizer(checkpoint)
tokenizer.encode("Hello"), tokenizer.decode(ids), tokenizer.eos_ids, tokenizer.size
stops, pieces = StopStrings(["\\n\\n"]), Detokenizer(tokenizer)
stops.push(pieces.push([id])), stops.push(pieces.flush()) + stops.flush(), stops.found
"""

from __future__ import annotations

from flatwake_service.text.detokenizer import Detokenizer
from flatwake_service.text.generation import SamplingDefaults, load_sampling_defaults
from flatwake_service.text.stops import StopStrings
from flatwake_service.text.template import ChatTemplate, load_template
from flatwake_service.text.tokenizer import Tokenizer, check_text, load_tokenizer

__all__ = [
    "ChatTemplate",
    "Detokenizer",
    "SamplingDefaults",
    "StopStrings",
    "Tokenizer",
    "check_text",
    "load_sampling_defaults",
    "load_template",
    "load_tokenizer",
]
