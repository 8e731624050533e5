"""Reading ``embedding``: the cosine of the hidden states of context and continuation."""

from collections.abc import Sequence

from choicewise.questions import Cosine
from choicewise.requests.prompt_rows import PromptRows
from choicewise.requests.readings import Asker
from choicewise.requests.request import FittedRequest, Request
from choicewise.tokens.choice_question import ChoiceQuestion

EMPTY = "an empty choice has no hidden state of its own to compare"


class EmbeddingAsker(Asker):
    """Asks how similar the context and each continuation are, each as a text of its own."""

    def reserve(self, prompt: PromptRows, requests: Sequence[Request]) -> list[int]:
        """Nothing follows the context."""
        return [0] * len(requests)

    def ask(self, prompt: PromptRows, fitted: Sequence[FittedRequest]) -> None:
        """One cosine per choice that has a text."""
        encodings = prompt.encodings
        encodings.add_sequences(text for each in fitted for text in (each.context, *each.request.continuations))
        for each in fitted:
            item, context = each.request.item, encodings.context(each.context)
            prompt.add_request(each)
            for choice, text in enumerate(each.request.continuations):
                cosine = Cosine(context, encodings.context(text), choice in item.gold) if text else None
                asked = ChoiceQuestion(None, missing=None if text else EMPTY)
                prompt.add_span(item.id, (choice, 0), cosine, continuation=text, choice=asked)


ASKER = EmbeddingAsker()
