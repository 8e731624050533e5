"""The main job: evaluate, plan, rescore, score single questions."""
