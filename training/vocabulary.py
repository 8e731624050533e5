"""The four tokenizers, each learnt from the training text: bytes, two sizes of BPE, and unigram."""

import json
from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

BOS, EOS, UNKNOWN = "<s>", "</s>", "<unk>"


def byte_level() -> Tokenizer:
    """One token a byte: byte-level BPE that has no merges."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate([BOS, EOS, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.add_special_tokens([BOS, EOS])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def bpe(texts: Iterable[str], size: int) -> Tokenizer:
    """Byte-level BPE with `size` tokens, in the manner of GPT-2."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[BOS, EOS],
        initial_alphabet=sorted(alphabet),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def unigram(texts: Iterable[str], size: int) -> Tokenizer:
    """Unigram with a word-start mark and byte fallback, in the manner of SentencePiece.

    A line break is always a token of its own, so that no piece joins an answer to the next question.
    """
    special = [UNKNOWN, BOS, EOS]
    split = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex("\n"), "isolated"),
            pre_tokenizers.Metaspace(prepend_scheme="first"),
        ]
    )
    learner = Tokenizer(models.Unigram())
    learner.pre_tokenizer = split
    trainer = trainers.UnigramTrainer(
        vocab_size=size - 256, special_tokens=special, unk_token=UNKNOWN, show_progress=False
    )
    learner.train_from_iterator(texts, trainer)
    scores = {token: score for token, score in learner_pieces(learner) if token not in special}
    floor = (
        min(scores.values()) - 10.0
    )  # a byte is the last resort, never a rival of a learnt piece
    pieces = [(token, 0.0) for token in special]
    pieces += [(f"<0x{byte:02X}>", floor) for byte in range(256)]
    pieces += scores.items()
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=True))
    tokenizer.add_special_tokens(special)
    tokenizer.pre_tokenizer = split
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return tokenizer


def learner_pieces(tokenizer: Tokenizer) -> list[tuple[str, float]]:
    """The pieces of a trained unigram model with their log-probabilities."""
    return [(token, score) for token, score in json.loads(tokenizer.to_str())["model"]["vocab"]]


def finished(tokenizer: Tokenizer, adds_bos: bool, context: int) -> PreTrainedTokenizerFast:
    """The tokenizer as transformers loads it; `context` is the model's window in tokens."""
    if adds_bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{BOS} $A",
            pair=f"{BOS} $A $B",
            special_tokens=[(BOS, tokenizer.token_to_id(BOS))],
        )
    unknown = {"unk_token": UNKNOWN} if tokenizer.token_to_id(UNKNOWN) is not None else {}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token=EOS,
        model_max_length=context,
        clean_up_tokenization_spaces=False,
        **unknown,
    )
