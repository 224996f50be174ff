"""Answers of a taxonomy by loops over sets of classes: slow and obvious."""

from itertools import combinations


def leaves_of(parents, num_classes):
    """The classes of each node, given each node's parent (-1 for the root)."""
    found = [set() for _ in parents]
    for leaf in range(num_classes):
        node = leaf
        while node != -1:
            found[node].add(leaf)
            node = parents[node]
    return [frozenset(one) for one in found]


def mass_of(p, leaves):
    return sum(p[j] for j in sorted(leaves))


def chain_of(p, parents):
    node, chain = max(range(len(p)), key=lambda j: (p[j], -j)), []
    while node != -1:
        chain.append(node)
        node = parents[node]
    return chain


def climb_score(p, y, parents):
    leaves = leaves_of(parents, len(p))
    return max((mass_of(p, leaves[v]) for v in chain_of(p, parents) if y not in leaves[v]), default=0.0)


def climb_answer(p, threshold, parents):
    leaves, chain = leaves_of(parents, len(p)), chain_of(p, parents)
    return [next((v for v in chain if mass_of(p, leaves[v]) > threshold), chain[-1])]


def families(p, parents, r):
    """The growing unions of at most r nodes, each as a list of nodes in ascending order."""
    leaves, union, found = leaves_of(parents, len(p)), [], []
    for leaf in sorted(range(len(p)), key=lambda j: (-p[j], j)):
        if any(leaf in leaves[v] for v in union):
            continue
        union = completed([*union, leaf], parents, leaves)
        while len(union) > r:
            union = completed(merged(union, p, leaves), parents, leaves)
        found.append(sorted(union))
    return found


def completed(union, parents, leaves):
    changed = True
    while changed:
        changed = False
        for v in range(len(parents)):
            below = [u for u in union if parents[u] == v]
            if below and frozenset().union(*(leaves[u] for u in below)) == leaves[v]:
                union, changed = [u for u in union if u not in below] + [v], True
    return union


def merged(union, p, leaves):
    held = frozenset().union(*(leaves[u] for u in union))
    choices = []
    for a, b in combinations(union, 2):
        above = [v for v in range(len(leaves)) if leaves[a] | leaves[b] <= leaves[v]]
        v = min(above, key=lambda v: (len(leaves[v]), v))
        added = leaves[v] - held
        choices.append((len(added), -mass_of(p, added), v))
    v = min(choices)[2]
    return [u for u in union if not leaves[u] <= leaves[v]] + [v]


def union_of(union, leaves):
    return frozenset().union(*(leaves[u] for u in union))


def few_score(p, y, parents, r):
    leaves, before = leaves_of(parents, len(p)), 0.0
    for union in families(p, parents, r):
        if y in union_of(union, leaves):
            return before
        before = mass_of(p, union_of(union, leaves))
    raise AssertionError("the last union holds all classes")


def few_answer(p, threshold, parents, r):
    leaves, unions = leaves_of(parents, len(p)), families(p, parents, r)
    return next((u for u in unions if mass_of(p, union_of(u, leaves)) > threshold), unions[-1])
