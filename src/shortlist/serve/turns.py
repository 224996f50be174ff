"""A queue in which clients take turns: one client that sends much does not delay the others."""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Turns(Generic[Item]):
    """A queue for each client. After its turn, a client waits until all others had theirs."""

    def __init__(self) -> None:
        self._queues: OrderedDict[str, deque[Item]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._queues)

    def __iter__(self) -> Iterator[tuple[str, Item]]:
        """Give all items with their clients."""
        return ((client, item) for client, items in self._queues.items() for item in items)

    def put(self, client: str, item: Item) -> None:
        """Add an item at the end of a client's queue."""
        items = self._queues.get(client)
        if items is None:
            items = self._queues[client] = deque()
        items.append(item)

    def take(self, fits: Callable[[Item], bool]) -> Item | None:
        """Take the first item of the first client in turn whose item fits; ``None`` if none does."""
        for client, items in self._queues.items():
            if fits(items[0]):
                item = items.popleft()
                if items:
                    self._queues.move_to_end(client)
                else:
                    del self._queues[client]
                return item
        return None

    def clear(self) -> None:
        """Remove all items."""
        self._queues.clear()
