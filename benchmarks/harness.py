"""The evaluation harness 0.4.13 against ours: whole commands and inner parts, in turn.

python benchmarks/harness.py [--workload mmlu-letters ...] [--model 25m ...] [--dtype float32 ...] [--repeats 3]
"""

from compare import HERE, Peer, main

if __name__ == "__main__":
    main(
        Peer("harness", "peers/harness_peer.py", HERE.parent / ".venv-peers/bin/python"),
        "harness.json",
    )
