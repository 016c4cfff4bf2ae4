"""Tests for jtransformer.data.prefetch."""

import threading
import time

import pytest

from jtransformer.data.prefetch import prefetch


class Numbers:
    """Batches that are their own numbers, and a record of what was asked for."""

    def __init__(self, seconds=0.0, fails_at=None):
        self.made, self.threads = [], set()
        self._seconds, self._fails_at = seconds, fails_at

    def __getitem__(self, t):
        self.threads.add(threading.current_thread())
        if t == self._fails_at:
            raise RuntimeError(f"batch {t} cannot be made")
        time.sleep(self._seconds)
        self.made.append(t)
        return t


@pytest.fixture(autouse=True)
def no_thread_is_left():
    before = threading.active_count()
    yield
    assert threading.active_count() == before


def wait_until(true):
    deadline = time.monotonic() + 10
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.parametrize("depth", [1, 2, 5, 100])
@pytest.mark.parametrize(("first", "last"), [(0, 20), (7, 20), (19, 20)])
def test_order_is_that_of_the_numbers(first, last, depth):
    batches = Numbers()
    with prefetch(batches, first, last, depth=depth) as ahead:
        assert list(ahead) == list(range(first, last))
    assert batches.made == list(range(first, last))
    assert len(batches.threads) == 1 and threading.current_thread() not in batches.threads


@pytest.mark.parametrize(("first", "last"), [(3, 3), (5, 3)])
def test_null_no_batch_is_asked_for(first, last):
    batches = Numbers()
    with prefetch(batches, first, last) as ahead:
        assert list(ahead) == [] and batches.made == []


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_live_depth_is_how_many_are_made_ahead(depth):
    batches = Numbers()
    with prefetch(batches, 0, 50, depth=depth) as ahead:
        wait_until(lambda: len(batches.made) == depth)
        for used in range(5):
            assert next(ahead) == used
            expected = list(range(used + 1 + depth))
            wait_until(lambda expected=expected: batches.made == expected)
            time.sleep(0.01)
            assert batches.made == expected


def test_batches_are_made_while_the_consumer_is_busy():
    seconds = 0.02
    with prefetch(Numbers(seconds), 0, 10) as ahead:
        next(ahead)
        waited = 0.0
        for _ in range(9):
            time.sleep(2 * seconds)
            began = time.monotonic()
            next(ahead)
            waited += time.monotonic() - began
    assert waited < 9 * seconds / 3


def test_error_of_the_thread_is_raised_where_the_batch_is_used():
    with pytest.raises(RuntimeError, match="batch 4 cannot be made") as caught:
        with prefetch(Numbers(fails_at=4), 0, 20) as ahead:
            used = [next(ahead) for _ in range(4)]
            assert used == [0, 1, 2, 3]
            next(ahead)
    assert "__getitem__" in {entry.name for entry in caught.traceback}


def test_error_that_nobody_reaches_is_none():
    with prefetch(Numbers(fails_at=1), 0, 20) as ahead:
        assert next(ahead) == 0


def test_leaving_early_ends_the_thread_within_a_batch():
    batches = Numbers(seconds=0.05)
    with prefetch(batches, 0, 10**6, depth=100) as ahead:
        next(ahead)
        began = time.monotonic()
    assert time.monotonic() - began < 1 and len(batches.made) < 10


def test_error_of_the_consumer_ends_the_thread():
    with pytest.raises(KeyError):
        with prefetch(Numbers(), 0, 10**6):
            raise KeyError


@pytest.mark.parametrize("depth", [0, -1])
def test_error_depth(depth):
    with pytest.raises(ValueError, match=f"at least 1, got depth={depth}; use 2"):
        with prefetch(Numbers(), 0, 3, depth=depth):
            pass
