"""In which order equal numbers come out of C++'s priority queue and sort: that is the order that TensorFlow's combined suppression of boxes takes them in.

Both are what libstdc++ makes of the textbook: a binary heap whose hole sinks to a leaf before the last element rises from there, and a quicksort with the
median of three that leaves pieces of up to 16 to one insertion sort. Only for rows with equal numbers: all others have one order.
"""

from __future__ import annotations

from collections.abc import Sequence

_SHORT = 16


def popped(scores: Sequence[float]) -> list[int]:
    """The places of numbers that are pushed one after the other, as they are popped, the largest first."""
    heap: list[int] = []

    def rise(hole: int, new: int) -> None:
        value = scores[new]
        while hole and scores[heap[above := (hole - 1) // 2]] < value:
            heap[hole] = heap[above]
            hole = above
        heap[hole] = new

    for i in range(len(scores)):
        heap.append(i)
        rise(i, i)
    result = []
    while heap:
        result.append(heap[0])
        last = heap.pop()
        n, hole = len(heap), 0
        if not n:
            break
        while (right := 2 * hole + 2) < n:
            larger = right - (scores[heap[right]] < scores[heap[right - 1]])
            heap[hole] = heap[larger]
            hole = larger
        if right == n:  # there is a left one only
            heap[hole] = heap[n - 1]
            hole = n - 1
        rise(hole, last)
    return result


def falling(scores: Sequence[float]) -> list[int]:
    """The places of numbers as they are sorted, the largest first."""
    order = list(range(len(scores)))
    pieces = [(0, len(order))]
    while pieces:
        start, end = pieces.pop()
        while end - start > _SHORT:
            cut = _partition(order, scores, start, end)
            pieces.append((cut, end))
            end = cut
    for i in range(1, len(order)):
        place = order[i]
        value, j = scores[place], i
        while j and value > scores[order[j - 1]]:
            order[j] = order[j - 1]
            j -= 1
        order[j] = place
    return order


def _partition(order: list[int], scores: Sequence[float], start: int, end: int) -> int:
    """Brings a median of three to the front, those that are larger before those that are not, and says where these begin."""
    three = start + 1, (start + end) // 2, end - 1
    a, b, c = (scores[order[i]] for i in three)
    median = three[(1 if b > c else 2 if a > c else 0) if a > b else (0 if a > c else 2 if b > c else 1)]
    order[start], order[median] = order[median], order[start]
    pivot = scores[order[start]]
    low, high = start + 1, end
    while True:
        while scores[order[low]] > pivot:
            low += 1
        high -= 1
        while pivot > scores[order[high]]:
            high -= 1
        if low >= high:
            return low
        order[low], order[high] = order[high], order[low]
        low += 1
