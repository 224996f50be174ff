"""Passes over many rows: each is a map from a shard of rows to a part, and a merge of the parts.

One process, several, or the machines of a Ray cluster run the same map, and the parts have the same bits.
"""
