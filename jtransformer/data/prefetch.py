"""Batches that are made by a thread while a step is computed."""

import collections
import contextlib
import itertools
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from jtransformer.data.batch import Batch


class Batches(Protocol):
    """What has a batch for every number."""

    def __getitem__(self, t: int, /) -> Batch:
        """Returns batch t."""
        ...


@contextlib.contextmanager
def prefetch(
    batches: Batches, first: int, last: int, *, depth: int = 2
) -> Generator[Iterator[Batch], None, None]:
    """Has batches made ahead of their use, in order; on leaving, the thread has ended.

    Nothing is sent to a device. What goes wrong in making a batch is raised where that batch is
    asked for.

    Args:
        batches: Returns a batch for its number, from any thread.
        first: Number of the first batch.
        last: The number after that of the last batch.
        depth: Batches that are made ahead.

    Raises:
        ValueError: If the depth is not at least 1.
    """
    if depth < 1:
        raise ValueError(f"depth must be at least 1, got {depth=}; use 2.")
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="batches") as thread:
        numbers = iter(range(first, last))
        pending: collections.deque[Future[Batch]] = collections.deque()

        def order(count: int) -> None:
            for t in itertools.islice(numbers, count):
                pending.append(thread.submit(batches.__getitem__, t))

        def made() -> Iterator[Batch]:
            while pending:
                oldest = pending.popleft()
                order(1)
                yield oldest.result()

        order(depth)
        try:
            yield made()
        finally:
            thread.shutdown(wait=True, cancel_futures=True)
