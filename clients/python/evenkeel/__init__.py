"""Ask an Evenkeel recommender or agent.

    import evenkeel

    with evenkeel.Recommender() as recommender:
        for one in recommender.recommendations(namespace="shop"):
            print(one.workload, one.container, one.resource, one.current, one.request)

Answers are the messages of ``evenkeel.v1``; :mod:`evenkeel.frames` makes pandas frames of them.
"""
from evenkeel.agent import Agent
from evenkeel.connection import EvenkeelError
from evenkeel.recommender import Recommender

__all__ = ["Agent", "EvenkeelError", "Recommender"]
