"""Collect the facts about a broker that `rabbitdelay doctor` judges."""
