"""A language whose tokens are bytes, so that tests can read what an engine was given."""

from __future__ import annotations

from flatwake_service.http.language import OPENAI, Language
from flatwake_service.text import ChatTemplate, SamplingDefaults, Tokenizer
from flatwake_service.text.vocabulary import BYTE_OF, Vocabulary
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Encoder

EOS = 256
BOS = 257
SIZE = 258

TEMPLATE = """\
{%- for message in messages -%}
{%- if message.content == "raise" %}{{ raise_exception("no such words here") }}{% endif -%}
{%- if message.content == "loop" -%}
{%- for i in range(99999) -%}{%- for j in range(99999) -%}{%- endfor -%}{%- endfor -%}
{%- endif -%}
[{{ message.role }}]{{ message.content }}
{%- endfor -%}
{%- if add_generation_prompt %}[assistant]{{ mood or "" }}{% endif -%}
"""


def tokenizer() -> Tokenizer:
    vocabulary = dict(BYTE_OF)
    encoder = Encoder(models.BPE(vocab=vocabulary, merges=[]))
    encoder.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    encoder.decoder = decoders.ByteLevel()
    encoder.add_special_tokens([AddedToken("<eos>"), AddedToken("<bos>")])
    return Tokenizer(
        Vocabulary(
            encoder=encoder,
            alphabet="bytes",
            size=SIZE,
            added={EOS: "<eos>", BOS: "<bos>"},
            special=frozenset({EOS, BOS}),
            bos_id=BOS,
            eos_ids=frozenset({EOS}),
            names={"eos_token": "<eos>", "bos_token": "<bos>"},
        )
    )


def language(sampling: SamplingDefaults = OPENAI) -> Language:
    loaded = tokenizer()
    return Language(loaded, ChatTemplate(TEMPLATE, loaded.names), sampling)
