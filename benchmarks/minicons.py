"""minicons 0.3.39 against ours: whole commands and inner parts, in turn.

python benchmarks/minicons.py [--workload mmlu-letters ...] [--model 25m ...] [--dtype float32 ...] [--repeats 3]
"""

from compare import HERE, Peer, main

if __name__ == "__main__":
    main(
        Peer(
            "minicons",
            "peers/minicons_peer.py",
            HERE.parent / ".venv-peers/bin/python",
            nulls=False,
        ),
        "minicons.json",
    )
