"""Ask decision endpoints, which answer a state and typed questions with a probability per option.

``dialects.py`` writes the requests of every format, ``answers.py`` reads the answers.
"""
