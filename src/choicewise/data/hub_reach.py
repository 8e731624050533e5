"""Whether the Hub answers: asked once, where ``huggingface_hub`` would try for half a minute.

The answer is remembered for a while, so that the second benchmark of a suite is not asked for in vain as the first was.
"""

from threading import Thread
from time import monotonic
from typing import Final

REFUSED: Final = "can't be reached"
"""What is known at once: no network, a name that nobody resolves, a connection that is refused."""

REMEMBERED: Final = 60.0
"""Seconds that an answer holds: a notebook outlives a network that is down."""

_answers: dict[str, tuple[float, str]] = {}


def out_of_reach() -> str:
    """Why ``HF_ENDPOINT`` gave no answer when it was last asked, at most a minute ago; empty where it gave any."""
    from huggingface_hub import constants

    endpoint = constants.ENDPOINT
    asked, silence = _answers.get(endpoint, (float("-inf"), ""))
    if monotonic() - asked > REMEMBERED:
        silence = _silence_in_time(endpoint)
        _answers[endpoint] = monotonic(), silence
    return silence


def silence_of(error: BaseException) -> str:
    """What an error of the package's transport says about the Hub; empty where the Hub answered something."""
    names = {each.__name__ for each in type(error).__mro__}  # of another module with each version of the package
    if "TimeoutException" in names:
        return _too_slow()
    return REFUSED if names & {"NetworkError", "ProxyError"} else ""


def _patience() -> int:
    """Seconds that the package waits for an answer of the Hub, here as in the package: 10, or as users set it."""
    from huggingface_hub import constants

    return constants.HF_HUB_ETAG_TIMEOUT


def _too_slow() -> str:
    return f"did not answer within {_patience()} s (HF_HUB_ETAG_TIMEOUT sets another time)"


def _silence_in_time(endpoint: str) -> str:
    """Asked in a thread, as nothing bounds the time that resolving a name may take."""
    answers: list[str] = []
    thread = Thread(target=lambda: answers.append(_silence(endpoint)), daemon=True)
    thread.start()
    thread.join(_patience())
    return answers[0] if answers else _too_slow()


def _silence(endpoint: str) -> str:
    """By the session of the package, which knows proxies and certificates; without its token."""
    from huggingface_hub import get_session

    try:
        get_session().head(endpoint, timeout=_patience(), follow_redirects=False)
    except Exception as error:
        return silence_of(error)
    return ""
