"""The policies heal, word and bytes: what they ask, give and refuse; and probabilities of bytes against brute force."""

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from choicewise.errors import ModelError, ProtocolError
from choicewise.protocols.protocol import BOUNDARIES, CORRECTED
from choicewise.protocols.readings import READINGS
from choicewise.questions import Ids, Mass, Span, TokenScores, TokenSet
from choicewise.tokens.boundary import CORRECTIONS, ChoicePrompt, fit_span, without
from choicewise.tokens.byte_coverings import (
    ByteProbability,
    all_spellings,
    answer_with_bytes,
    count_spellings,
    parts,
    sizes,
    token_sizes,
)
from choicewise.tokens.tokenizer import ByteTokenizer, Tokenizer, Vocabulary, vocabulary
from tests.helpers.messages import Gist
from tests.helpers.protocols import choice_prompts, mmlu_protocol
from tests.helpers.real_tokenizers import LOSSLESS, LOSSY
from tests.helpers.real_tokenizers import tokenizer_with_bos as tokenizer
from tests.helpers.toy_tokenizers import WORDS, EndlessModel, ToyModel, ToyTokenizer

CASES = {
    "english": ("Once upon a ti", ["me", "ger", "me there was"]),
    "chinese": ("以下哪一个是正", ["确的", "常", "确"]),
    "emoji": ("a family 👩\u200d👩\u200d", ["👧", "👦 and", "👧\u200d👦"]),
    "code": ("def f(x):\n    retu", ["rn x", "rned", "rn"]),
}
MINICONS = [("retu", "rn"), ("collec", "tions"), ("The func", "tion name"), ("foo(", '") and')]
WORDY = ToyTokenizer(WORDS, eos=False)


def score(model: ToyModel, asked: Sequence[ChoicePrompt]) -> list[float]:
    """Nats of every choice, its corrections included."""
    questions = [question for one in asked for question in one.prompts()]
    seen = {
        id(questions[place]): found.logprobs.sum(dtype=float)
        for place, found in answer_with_bytes(model.answer, questions, model.tokenizer)
    }
    return [
        float(seen[id(one.span)] - seen.get(id(one.before), 0.0) + seen.get(id(one.after), 0.0))
        if one.span is not None
        else np.nan
        for one in asked
    ]


def under(
    policy: str, context: str, choices: Sequence[str], tokens: Tokenizer | None = None
) -> list[ChoicePrompt]:
    return choice_prompts(tokens or ToyTokenizer(), policy, "default", context, choices, [0])


def scored_bytes(tokens: Tokenizer, one: ChoicePrompt) -> bytes:
    if isinstance(one.span, ByteProbability):
        return one.span.text
    return b"".join(tokens.token_bytes[token] for token in one.span.continuation)


TOY_TEXT = st.text("ab", max_size=3)
TOY_CHOICES = st.lists(st.text("ab", min_size=1, max_size=3), min_size=1, max_size=4)


@given(context=TOY_TEXT, choices=TOY_CHOICES)
@settings(max_examples=40)
def test_heal_divides_by_how_the_shared_tokens_may_go_on(context: str, choices: list[str]) -> None:
    model = ToyModel()
    plain, healed = under("lcp", context, choices), under("heal", context, choices)
    for one, other, before, after in zip(
        plain, healed, score(model, plain), score(model, healed), strict=True
    ):
        assert one.span.continuation.tolist() == other.span.continuation.tolist()
        rest = scored_bytes(model.tokenizer, one)[: -len(choices[plain.index(one)].encode())]
        if other.before is None:
            assert after == before
            continue
        mass = sum(
            model.probability(other.span.context, path) for path in coverings(model, other.before)
        )
        assert (other.before.text, after) == (rest, pytest.approx(before - np.log(mass), abs=1e-4))
        assert after <= 1e-6


def coverings(model: ToyModel, cover: ByteProbability) -> set[tuple[int, ...]]:
    """Every covering sequence whose tokens but the last are a known path."""
    table, found = model.tokenizer.token_bytes, set()
    for path in cover.spellings:
        spelled = b"".join(table[token] for token in path)
        assert cover.text.startswith(spelled)
        rest = cover.text[len(spelled) :]
        found |= {
            (*path, token) for token, part in enumerate(table) if part and part.startswith(rest)
        }
    return found


@given(context=TOY_TEXT, length=st.integers(1, 3))
@settings(max_examples=15)
def test_probabilities_of_texts_sum_to_at_most_one_and_those_of_bytes_to_one(
    context: str, length: int
) -> None:
    choices = ["".join(letters) for letters in product("ab", repeat=length)]
    assert np.exp(score(ToyModel(), under("heal", context, choices))).sum() <= 1 + 1e-5
    assert np.exp(score(EndlessModel(), under("bytes", context, choices))).sum() == pytest.approx(
        1, abs=1e-4
    )


@given(context=TOY_TEXT, choices=TOY_CHOICES)
@settings(max_examples=25)
def test_bytes_are_the_brute_force_share_of_what_continues(
    context: str, choices: list[str]
) -> None:
    model = ToyModel()
    asked = under("bytes", context, choices)
    for one, found, choice in zip(asked, score(model, asked), choices, strict=True):
        start, text = one.span.context.tolist(), one.span.text
        rest = text[: len(text) - len(choice)]
        assert one.span.offsets == tuple(range(len(rest), len(text) + 1))
        assert found == pytest.approx(
            np.log(covered(model, start, text) / covered(model, start, rest)), abs=1e-4
        )


def covered(model: ToyModel, context: list[int], text: bytes) -> float:
    """P(text | context) by the definition, one token at a time."""
    if not text:
        return 1.0
    row, total = model.row(context), 0.0
    for token, spelled in enumerate(model.tokenizer.token_bytes):
        if spelled and spelled.startswith(text):
            total += row[token]
        elif spelled and text.startswith(spelled):
            total += row[token] * covered(model, [*context, token], text[len(spelled) :])
    return total


@pytest.mark.parametrize("context", ["a", "ab\n", ""])
@pytest.mark.parametrize("eos", [False, True])
def test_probabilities_of_all_words_sum_to_at_most_one(context: str, eos: bool) -> None:
    """With lcp they need not: a word that goes on is counted with its beginning."""
    model = ToyModel(ToyTokenizer((*WORDS[:-1], b"", b"") if eos else WORDS, eos))
    space = "" if context in ("", "ab\n") else " "
    words = [
        space + "".join(letters) for length in (1, 2, 3) for letters in product("ab", repeat=length)
    ]
    asked = under("word", context, words, model.tokenizer)
    assert all(one.missing is None for one in asked)
    sums, plain = (
        np.exp(score(model, asked)),
        np.exp(score(model, under("lcp", context, words, model.tokenizer))),
    )
    assert 0 < sums.sum() <= 1
    masses = [one.before for one in asked if isinstance(one.before, Mass)]
    begins = dict(answer_with_bytes(model.answer, masses, model.tokenizer))
    assert (
        sums < plain / np.exp([float(begins[place].logprobs[0]) for place in range(len(masses))])
    ).all()


def test_word_is_the_formula() -> None:
    """P(w | c) = P(tokens of w | c) * P(a word or the text ends | c, w) / P(a word begins or the text ends | c)."""
    tokens = ToyTokenizer((*WORDS[:-1], b"", b""), eos=True)
    model = ToyModel(tokens)
    (one,) = under("word", "a", [" ab"], tokens)
    start, white = [8, 1], [0, 3, 4, 5, 7]  # BOS a, and all that starts with white space, and EOS
    ends, begins = model.row([*start, 4])[white].sum(), model.row(start)[white].sum()
    assert score(model, [one]) == pytest.approx(
        [np.log(model.row(start)[4] * ends / begins)], abs=1e-5
    )
    (bare,) = under("word", "a\n", ["b"], tokens)
    begins = model.row([8, 1, 5])[[1, 2, 6, 7]].sum()
    ends = model.row([8, 1, 5, 2])[white].sum()
    assert score(model, [bare]) == pytest.approx(
        [np.log(model.row([8, 1, 5])[2] * ends / begins)], abs=1e-5
    )
    (closed,) = under("word", "a", [" ab\n"], tokens)
    assert closed.after is None


@given(
    context=st.text("ab \n", max_size=3),
    choices=st.lists(st.text("ab ", min_size=1, max_size=3), max_size=4),
)
@settings(max_examples=30)
def test_permuted_choices_have_permuted_scores(context: str, choices: list[str]) -> None:
    model = ToyModel(WORDY)
    for policy in CORRECTIONS:
        forward = score(model, under(policy, context, choices, WORDY)) if choices else []
        backward = score(model, under(policy, context, choices[::-1], WORDY)) if choices else []
        assert forward == pytest.approx(backward[::-1], nan_ok=True)


@given(context=TOY_TEXT, choices=TOY_CHOICES)
@settings(max_examples=20)
def test_every_policy_is_the_same_for_bytes(context: str, choices: list[str]) -> None:
    """Where every byte is a token nothing merges, and there is one way to spell a text."""
    plain = under("lcp", context, choices, ByteTokenizer())
    for policy in ("heal", "bytes"):
        for one, other in zip(under(policy, context, choices, ByteTokenizer()), plain, strict=True):
            assert one.before is None
            assert one.span.continuation.tolist() == other.span.continuation.tolist()


@pytest.mark.parametrize("name", LOSSLESS)
@pytest.mark.parametrize("case", CASES)
def test_what_is_scored_is_the_text(name: str, case: str) -> None:
    """In every script: the rest of the context and the continuation, whole, whatever merges."""
    tokens, (context, choices) = tokenizer(name), CASES[case]
    asked = {policy: under(policy, context, choices, tokens) for policy in ("lcp", "heal", "bytes")}
    for place, choice in enumerate(choices):
        plain, healed, exact = (asked[policy][place] for policy in asked)
        assert (plain.missing, healed.missing) == (None, None)
        assert not plain.noncanonical | plain.lossy | bool(plain.unknown)
        text = scored_bytes(tokens, plain)
        assert text.endswith(choice.encode())
        rest = text[: len(text) - len(choice.encode())]
        assert context.encode().endswith(rest)
        assert (healed.before is not None) == bool(rest)
        if isinstance(healed.before, ByteProbability):
            assert (healed.before.text, healed.before.offsets) == (rest, (0, len(rest)))
        if exact.missing is None:
            assert scored_bytes(tokens, exact) == text
            assert exact.span.continuation.tolist() == list(choice.encode())
        else:
            assert "over the limit 4096" in exact.missing
    assert any(one.missing is None for one in asked["bytes"])


@pytest.mark.parametrize(("context", "choice"), MINICONS)
def test_what_other_tools_drop_is_scored_or_flagged(context: str, choice: str) -> None:
    """Cases in which minicons 0.3.39 fails, or scores a part of the text without saying so."""
    tokens = tokenizer("tokenizers/gpt2")
    for policy in ("lcp", "heal", "bytes"):
        (one,) = under(policy, context, [choice], tokens)
        assert (one.missing, one.merged) == (None, context != "foo(")
        assert scored_bytes(tokens, one).endswith(choice.encode())
    (joint,) = under("joint", context, [choice], tokens)
    assert joint.missing is not None or joint.noncanonical == joint.merged == one.merged


@pytest.mark.parametrize("name", LOSSLESS)
@given(context=st.text(max_size=8), choice=st.text(min_size=1, max_size=3))
@settings(max_examples=15)
def test_heal_of_an_unmerged_boundary_is_lcp(name: str, context: str, choice: str) -> None:
    tokens = tokenizer(name)
    (plain,), (healed,) = (under(policy, context, [choice], tokens) for policy in ("lcp", "heal"))
    assert plain.merged == healed.merged
    if not plain.merged and healed.missing is None:
        assert (healed.before, plain.span.key) == (None, healed.span.key)


@pytest.mark.costly("real tokenizers")
@pytest.mark.parametrize("name", LOSSY)
def test_lost_text_is_never_silent(name: str) -> None:
    tokens = tokenizer(name)
    bos = "none" if "babyllama" not in name else "default"
    context, choice = ("The answer is", " 你好 👍🏽")
    for policy in ("joint", "separate", "lcp"):
        (one,) = choice_prompts(tokens, policy, bos, context, [choice], [])
        assert one.missing is not None or (one.lossy and one.unknown)
    for policy in ("heal", "word", "bytes"):
        (one,) = choice_prompts(tokens, policy, bos, context, [choice], [])
        assert "do not spell" in (one.missing or "") or "leaves nothing to score" in (
            one.missing or ""
        )
    (one,) = choice_prompts(tokens, "lcp", bos, context + " 你好 of", [" a"], [])
    assert one.lossy


def test_word_pieces_are_scored_where_they_spell_the_text_and_lossy_where_they_lower_its_case() -> (
    None
):
    for name in ("tokenizers/t5", "tokenizers/bert-base-uncased"):
        for policy in ("lcp", "heal", "word", "bytes"):
            (one,) = choice_prompts(tokenizer(name), policy, "none", "the house is", [" blue"], [])
            assert (one.missing, one.lossy, one.unknown, one.merged) == (None, False, 0, False)
            assert scored_bytes(tokenizer(name), one) == b" blue"
    bert, names = tokenizer("tokenizers/bert-base-uncased"), [" Paris", " paris"]
    upper, lower = choice_prompts(bert, "lcp", "none", "the capital is", names, [])
    assert (upper.lossy, lower.lossy) == (True, False)
    upper, lower = choice_prompts(bert, "word", "none", "the capital is", names, [])
    assert (upper.missing is None, lower.missing is None) == (False, True)


@pytest.mark.parametrize(
    ("policy", "context", "choice", "reason"),
    [
        (
            "bytes",
            "x",
            " a text that is far too long to be spelled in every way there is",
            "over the limit 4096",
        ),
        ("word", "retu", "rns", None),
        ("word", "The (", "x", "begins inside a word"),
        ("bytes", "x", "", "nothing to score"),
    ],
)
def test_what_can_not_be_scored_is_missing_and_told(
    policy: str, context: str, choice: str, reason: str | None
) -> None:
    (one,) = under(policy, context, [choice], tokenizer("tokenizers/gpt2"))
    assert (one.span is None) == (reason is not None)
    assert (reason or "") in (one.missing or "")
    assert one.span is not None or (one.before, one.after) == (None, None)


def test_an_empty_choice_has_no_bytes_even_after_a_merge_and_tokens_that_mark_no_words_are_refused() -> (
    None
):
    empty, other = under("bytes", "aa", ["", "b"])
    assert empty.missing == Gist("continuation '' ... no tokens")
    assert other.missing is None
    with pytest.raises(ModelError, match="boundary:word needs tokens"):
        under("word", "a", ["b"])


def test_flags() -> None:
    gpt2, stories = tokenizer("tokenizers/gpt2"), tokenizer("models/stories260K")
    (apart,) = under("separate", "the hell", ["o"], gpt2)
    assert (apart.merged, apart.noncanonical, apart.lossy, apart.bos) == (True, True, False, 0)
    (whole,) = under("lcp", "the hell", ["o"], gpt2)
    assert (whole.merged, whole.noncanonical) == (True, False)
    (last,) = under("last-token", "Answer:", ["A"], tokenizer("tokenizers/mistral-7b-v0.2"))
    assert (last.noncanonical, last.lossy, last.bos) == (True, False, 1)
    (twice,) = under("lcp", "<s><s>a", [" b"], stories)
    assert (twice.bos, twice.lossy) == (2, False)
    (none,) = choice_prompts(stories, "lcp", "none", "a", [" b"], [])
    assert none.bos == 0


@pytest.mark.parametrize("policy", CORRECTIONS)
def test_corrections_fit_the_window_with_their_span(policy: str) -> None:
    choice = {"heal": "b", "word": " ab", "bytes": "abab"}[policy]
    (one,) = under(policy, "aabaaba", [choice], ToyTokenizer() if policy == "heal" else WORDY)
    needed = max(question.inputs for question in one.prompts())
    assert fit_span(one, needed, cut_start=False) is one
    refused = fit_span(one, needed - 1, cut_start=False)
    assert refused.missing == Gist(f"{needed} tokens ... window of {needed - 1}")
    assert list(refused.prompts()) == []
    cut = fit_span(one, needed - 1, cut_start=True)
    assert cut.tokens_dropped == 1
    for kept, whole in zip(cut.prompts(), one.prompts(), strict=True):
        assert kept.context.tolist() == whole.context[1:].tolist()


def test_only_likelihoods_are_corrected_and_bytes_have_no_rank() -> None:
    assert set(CORRECTED) < set(BOUNDARIES)
    assert "correction" not in READINGS["masked"].takes
    for boundary in CORRECTED:
        assert mmlu_protocol(boundary=boundary).boundary == boundary
        with pytest.raises(ProtocolError, match="reading masked gives none; use boundary lcp"):
            mmlu_protocol(boundary=boundary, reading="masked")
    for axes in ({"score": "greedy"}, {"outside": "top100=-100"}):
        with pytest.raises(ProtocolError, match="no ranks; use outside keep"):
            mmlu_protocol(boundary="bytes", **axes)  # type: ignore[arg-type]


TOY = ToyTokenizer()
BYTES_TEXT = st.text("ab", min_size=1, max_size=4).map(str.encode)
CONTEXT = st.lists(st.integers(0, 6), min_size=1, max_size=3)


def ids(*tokens: int) -> Ids:
    return np.asarray(tokens, dtype=np.int32)


def probability(context: list[int], text: bytes, *offsets: int) -> ByteProbability:
    return ByteProbability(ids(*context), text, offsets)


def total(model: ToyModel, question: ByteProbability) -> float:
    ((_, seen),) = answer_with_bytes(model.answer, [question], TOY)
    return float(seen.logprobs.sum(dtype=np.float64))


@given(context=CONTEXT, text=BYTES_TEXT)
@settings(max_examples=25)
def test_probabilities_of_bytes_are_those_of_brute_force(context: list[int], text: bytes) -> None:
    """Of all bytes together, of each after those before it, and of the next one, which is a or b."""
    model = EndlessModel()
    ((_, seen),) = answer_with_bytes(
        model.answer, [probability(context, text, *range(len(text) + 1))], TOY
    )
    prefixes = [model.starts_with(context, text[:end]) for end in range(len(text) + 1)]
    assert np.exp(total(model, probability(context, text, 0, len(text)))) == pytest.approx(
        prefixes[-1], rel=1e-4
    )
    assert np.exp(seen.logprobs) == pytest.approx(np.divide(prefixes[1:], prefixes[:-1]), rel=1e-4)
    assert (seen.tokens.tolist(), seen.ranks.tolist()) == (list(text), [-1] * len(text))
    following = [
        total(model, probability(context, text + byte, len(text), len(text) + 1))
        for byte in (b"a", b"b")
    ]
    assert np.exp(following).sum() == pytest.approx(1, rel=1e-5)


@given(context=CONTEXT, left=BYTES_TEXT, right=BYTES_TEXT)
@settings(max_examples=25)
def test_bytes_add_up(context: list[int], left: bytes, right: bytes) -> None:
    """S(ab) = S(a) + S(b | a), from the same tokens."""
    whole, model = left + right, ToyModel()
    first = total(model, probability(context, whole, 0, len(left)))
    second = total(model, probability(context, whole, len(left), len(whole)))
    assert total(model, probability(context, whole, 0, len(whole))) == pytest.approx(
        first + second, abs=1e-5
    )
    assert total(model, probability(context, left, 0, len(left))) == pytest.approx(first, abs=1e-5)


@given(text=st.text("ab", min_size=1, max_size=7).map(str.encode))
def test_spellings_are_all_there_are_and_counted(text: bytes) -> None:
    table, words = TOY.token_bytes, vocabulary(TOY)

    def plain(start: int) -> list[tuple[int, ...]]:
        fitting = [
            t for t, spelled in enumerate(table) if spelled and text[start:].startswith(spelled)
        ]
        inside = [token for token in fitting if start + len(table[token]) < len(text)]
        return [
            (),
            *((token, *rest) for token in inside for rest in plain(start + len(table[token]))),
        ]

    found = list(all_spellings(words, text))
    assert sorted(spelling for spelling, _ in found) == sorted(plain(0))
    assert all(spelled == len(words.spelled(spelling)) for spelling, spelled in found)
    assert count_spellings(words, text) == len(found)


def test_given_spellings_give_less_and_the_empty_one_the_single_tokens() -> None:
    model, text = ToyModel(), b"aab"
    single, some = (
        total(model, ByteProbability(ids(6), text, (0, 3), paths)) for paths in (((),), ((), (0,)))
    )
    assert np.exp(single) == pytest.approx(model.row([6])[4], rel=1e-5)
    second = model.row([6])[0] * model.row([6, 0])[2]
    assert np.exp(some) == pytest.approx(model.row([6])[4] + second, rel=1e-5)
    assert single < some < total(model, probability([6], text, 0, 3))


def test_bytes_of_a_byte_model_are_its_tokens() -> None:
    tokenizer = ByteTokenizer()
    question = ByteProbability(ids(256), "né".encode(), (0, 1, 2, 3))
    assert {len(part.context) for part in parts(question, tokenizer) if isinstance(part, Mass)} == {
        1,
        2,
        3,
    }
    assert count_spellings(vocabulary(tokenizer), "né".encode()) == 3


def test_what_no_token_spells_is_impossible() -> None:
    asked = [
        probability([6], b"x", 0, 1),
        probability([6], b"ax", 0, 1, 2),
        probability([6], b"a", 0, 1),
    ]
    found = dict(answer_with_bytes(ToyModel().answer, asked, TOY))
    assert (found[0].logprobs.tolist(), found[1].logprobs[1]) == ([-np.inf], -np.inf)
    assert np.isfinite(found[2].logprobs).all()
    ((_, after),) = answer_with_bytes(ToyModel().answer, [probability([6], b"xa", 1, 2)], TOY)
    assert np.isnan(after.logprobs).all()


def test_byte_probabilities_are_answered_with_spans_in_bounded_groups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = []

    class Counting(ToyModel):
        def answer(self, questions):  # type: ignore[no-untyped-def]
            calls.append(len(questions))
            return super().answer(questions)

    def answered() -> dict[int, list[float]]:
        asked = [Span(ids(6), ids(0, 1)), probability([6], b"abab", 0, 4)]
        asked += [Mass(ids(6), TokenSet([1, 2])), probability([6], b"ba", 0, 2)]
        return {
            index: seen.logprobs.tolist()
            for index, seen in answer_with_bytes(Counting().answer, asked, TOY)
        }

    whole = answered()
    assert len(calls) == 1
    monkeypatch.setattr("choicewise.tokens.byte_coverings.PARTS", 3)
    assert answered() == whole
    assert len(calls) > 2


def test_keys_sizes_and_inputs() -> None:
    question = probability([6, 0], b"abab", 1, 2, 4)
    others = [probability([6], b"abab", 1, 2, 4), probability([6, 0], b"abaa", 1, 2, 4)]
    others += [
        probability([6, 0], b"abab", 1, 4),
        ByteProbability(ids(6, 0), b"abab", (1, 2, 4), ((),)),
    ]
    assert probability([6, 0], b"abab", 1, 2, 4).key == question.key
    keys = {each.key for each in (question, *others)}
    assert (len(keys), without(question, 1).context.tolist(), question.inputs) == (5, [0], 5)
    assert ByteProbability(ids(6, 0), b"abab", (0, 4), ((), (0,))).inputs == 3
    assert question.continuation.tolist() == list(b"bab")
    bytes_of, beyond = token_sizes(TOY), len(TOY.token_bytes)

    def sized(asked: Span | ByteProbability, *seen: int) -> list[int]:
        return sizes(
            asked, TokenScores(ids(*seen), np.empty(0, dtype=np.float32), ids()), bytes_of
        ).tolist()

    assert sized(question) == [1, 2]
    assert sized(Span(ids(6), ids(2)), 2, 6) == sized(Span(ids(6), ids(2)), 2, beyond) == [2, 0]


@given(text=st.binary(max_size=3), table=st.lists(st.binary(max_size=3), min_size=1, max_size=12))
def test_vocabulary_by_its_bytes(text: bytes, table: list[bytes]) -> None:
    words = Vocabulary(ToyTokenizer(table))
    assert words.spelling(text) == [
        token for token, spelled in enumerate(table) if spelled and spelled == text
    ]
    continuing = [
        token for token, spelled in enumerate(table) if spelled and spelled.startswith(text)
    ]
    assert (words.continuing(text).ids.tolist(), words.longest) == (
        continuing,
        max(map(len, table)),
    )
    assert words.spelled(range(len(table))) == b"".join(table)
    starting = {token for token, spelled in enumerate(table) if spelled[:1].isspace()}
    assert set(words.spaced.ids.tolist()) == starting
    assert (
        set(words.unspaced.ids.tolist())
        == {token for token, spelled in enumerate(table) if spelled} - starting
    )


TABLES = {(b" a", b"b"): True, (b" ", b"a"): True, (b"a", b"b"): False}
TABLES |= {(b"low ", b"est", b" "): False, (b";\n", b" a"): True}


@pytest.mark.parametrize(("table", "marks"), TABLES.items())
def test_which_tokens_mark_words(table: tuple[bytes, ...], marks: bool) -> None:
    assert Vocabulary(ToyTokenizer(table)).marks_words is marks
    assert vocabulary(TOY) is vocabulary(TOY)
    assert len(table) in Vocabulary(ToyTokenizer([*table, b"", b""], eos=True)).spaced.ids
