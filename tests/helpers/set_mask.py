"""What transformers gives where the options of a set do not see each other."""

from typing import Any

import torch

from choicewise.questions import SetSpan


def set_logprobs(model: Any, asked: SetSpan, window: int | None = None) -> Any:
    """By an explicit mask and explicit positions, one token after the other, from a pass of its own."""
    start, end = int(asked.edges[0]), int(asked.edges[-1])
    tokens = [*asked.context.tolist(), *asked.continuation.tolist()[:-1]]
    option: list[int | None] = [None] * len(tokens)
    positions = list(range(start))
    for number, tokens_of in enumerate(asked.options):
        for place in range(len(tokens_of)):
            option[len(positions)] = number
            positions.append(start + place)
    resumed = start + max(map(len, asked.options))
    positions += range(resumed, resumed + len(tokens) - end)
    mask = torch.full((1, 1, len(tokens), len(tokens)), torch.finfo(torch.float32).min)
    for row in range(len(tokens)):
        for key in range(row + 1):
            near = window is None or positions[row] - positions[key] < window
            if near and (not start <= row < end or key < start or option[row] == option[key]):
                mask[0, 0, row, key] = 0
    places = {"attention_mask": mask, "position_ids": torch.tensor([positions])}
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([tokens]), **places, use_cache=False).logits[
            0, len(asked.context) - 1 :
        ]
    scored = torch.tensor(asked.continuation.tolist())[:, None]
    return (
        torch.log_softmax(logits[:, : model.config.vocab_size].float(), -1)
        .gather(1, scored)[:, 0]
        .numpy()
    )
