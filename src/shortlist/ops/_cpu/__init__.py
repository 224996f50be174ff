"""Versions of operators that are faster on the CPU only, mostly because values can be read there at once.

Each is reached by one line of an operator that asks :func:`shortlist._checks.can_read_values`, and gives the
same result as the general way beside that line; draws of noise have the same distribution. Nothing outside of
``ops`` imports this folder. ``make bench`` says what each is worth.
"""
