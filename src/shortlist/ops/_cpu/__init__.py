"""Ways that are faster on the CPU alone, mostly because values can be looked at there without waiting.

Each is reached by one line of an operator that asks :func:`shortlist._checks.can_read_values`, and gives the
same result as the general way beside that line; draws of noise have the same distribution. Nothing outside of
``ops`` imports this folder. ``make bench`` says what each is worth.
"""
