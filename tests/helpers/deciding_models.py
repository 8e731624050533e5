"""A tiny random Qwen3 that decision servers take: with a chat template, and labels that are single tokens."""

from pathlib import Path
from string import ascii_uppercase
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from choicewise.data.decisions import decision_drafts
from choicewise.data.items import Item
from tests.helpers.tiny_models import tiny

ADDED = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
WORDS = ("yes", "no", "Yes", "No", "YES", "NO", *(f"Ġ{letter}" for letter in ascii_uppercase))
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
"""As that of Qwen3: without thoughts, an empty one stands before the label."""


def save_deciding(folder: Path, **changes: Any) -> Path:
    """The model in ``folder``, with weights that depend on nothing but its configuration."""
    vocabulary = {
        sign: place for place, sign in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))
    }
    merges = []
    for word in WORDS:
        for end in range(1, len(word)):
            pair = word[:end], word[end]
            if "".join(pair) not in vocabulary:
                vocabulary["".join(pair)] = len(vocabulary)
                merges.append(pair)
    bare = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    bare.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bare.decoder = decoders.ByteLevel()
    bare.add_special_tokens([*ADDED])
    bare.add_tokens(
        [AddedToken(each, special=False, normalized=False) for each in ("<think>", "</think>")]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bare, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    ids = {
        "bos_token_id": None,
        "eos_token_id": len(vocabulary) + 2,
        "pad_token_id": len(vocabulary),
    }
    shape = {"hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 32}
    network = tiny(
        "qwen3",
        vocab_size=bare.get_vocab_size(),
        max_position_embeddings=2048,
        **shape,
        **ids,
        **changes,
    )
    network.save_pretrained(folder)
    return folder


ASKED = {
    "choice": ({"north": None, "south": "of the sea", "east": ""}, "south"),
    "noul": ({"true": "It blows."}, "true"),
    "score": (["bad", "fair", "good"], 1),
}


def rows(count: int) -> list[dict[str, Any]]:
    """So many states with a question of each kind; one state is a text, others objects with signs beyond ASCII."""
    asked = []
    for number in range(count):
        state = f"Wind {number}." if number % 4 == 3 else {"wind": number, "île": ["ß", None]}
        for kind, (criteria, answer) in ASKED.items():
            question = {
                "type": kind,
                "criteria": criteria,
                "instructions": f"What of wind {number % 3}?",
            }
            row = {
                "id": f"{kind}{number}",
                "state": state,
                "question": question,
                "expected": answer,
                "group": "winds",
            }
            asked.append(row)
    return asked


def winds(count: int) -> list[Item]:
    """The items of :func:`rows`."""
    return [make() for row in rows(count) for make in decision_drafts(row, "0")]
