"""Tasks of LM Evaluation Harness, asked here: its task files and data become datasets, protocols and requests.

The package ``lm_eval`` reads the files, loads the data and makes the requests (:mod:`.loading`).  Either a protocol of
ours renders them, too, to the letter, or they are kept as they are (:mod:`.task_form`).
"""
