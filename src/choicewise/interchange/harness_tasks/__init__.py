"""Tasks of lm-evaluation-harness as protocols of ours."""
