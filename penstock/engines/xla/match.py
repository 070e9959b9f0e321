"""Which of two forms of one computation is faster: both run in turn, and their typical times are compared.

What the machine does meanwhile must not decide, nor what forms do to each other. So forms change places every few steps, and the first half of the steps after a change, which find other
data in the caches and threads that still wait for the other form's work, does not count. Steps that were near each other are compared, so that a slow phase of the machine meets both forms, and the middle one of
these ratios counts, which a pause of the whole process or a few slow steps do not move. XLA has to be faster by `MARGIN`, and by `MARGIN_MORE` if it takes more of the CPUs for it: what is only as fast with more cores is slower
as soon as somebody else wants one.

A result is looked at again after `RESTS` steps, once if it was clear, again and again if it was close. The middle one of the last `LOOKS` counts; of two it is the second one, since
the first look comes when something has just been compiled.
"""

from __future__ import annotations

from time import perf_counter_ns, process_time_ns

MARGIN, MARGIN_MORE = 0.95, 0.9
"""Part of the host's time that XLA may take to win; the second one if it takes more of the CPUs."""
MORE = 1.25
"""How many times the host's CPU time is more of the CPUs."""
CLOSE, CLEAR = 2.0, 8.0
"""Ratios up to which a result is close, and from which on it need not be looked at again."""
LOOKS = 3
RESTS = (200, 2_000, 20_000)
"""Steps until the second look, the third one, and each one after these."""


def begin() -> tuple[int, int]:
    """CPU time of the process, and the time: before a step that is timed."""
    return process_time_ns(), perf_counter_ns()


class Match:
    """Steps of both forms in one look, and what came of looks.

    turn        steps of this look, whoever computed them
    host, xla   (ns, ns of CPU) of those that count
    scores      of the last looks: XLA's time over what it may take, so that it wins with less than 1
    count       how many looks there were
    rest        steps until the next look; counted down by those who run them, so that 0 and less is never
    margin      part of the host's time that XLA may take to win
    """

    __slots__ = ("block", "count", "host", "margin", "rest", "scores", "turn", "xla")

    def __init__(self, block: int = 2, margin: float = MARGIN) -> None:
        self.block, self.margin = block, margin
        self.scores: list[float] = []
        self.count = self.rest = 0
        self.begin_look()

    def begin_look(self) -> None:
        """Nothing is known yet."""
        self.turn = 0
        self.host: list[tuple[int, int]] = []
        self.xla: list[tuple[int, int]] = []

    @property
    def is_xlas_turn(self) -> bool:
        return self.turn // self.block % 2 == 1

    def add(self, is_xla: bool, begun: tuple[int, int]) -> None:
        """One of the forms has run since `begun`."""
        wall = perf_counter_ns() - begun[1]
        self.note(is_xla, wall, process_time_ns() - begun[0])

    def note(self, is_xla: bool, wall: int, cpu: int) -> None:
        """One of the forms has run for so long."""
        if self.turn % self.block >= self.block // 2:
            (self.xla if is_xla else self.host).append((wall, cpu))
        self.turn += 1

    def is_over(self, trials: int) -> bool:
        """Whether so many steps of each form are known: twice as many if XLA's is only a little behind, which gets better with the first ones."""
        known = min(len(self.host), len(self.xla))
        return known >= trials and (known >= 2 * trials or (known % (self.block - self.block // 2) == 0 and not 1 <= self.ratio(trials) < 1.5))

    def times(self, trials: int) -> tuple[float, float]:
        """Typical ns of the host's form and of XLA's."""
        pairs = self._pairs(trials)
        return _middle([host for (host, _), _ in pairs]), _middle([xla for _, (xla, _) in pairs])

    def ratio(self, trials: int) -> float:
        """XLA's time over the host's: the middle one of steps that were near each other, which a slow phase that begins between two others does not move."""
        return _middle([xla / max(host, 1) for (host, _), (xla, _) in self._pairs(trials)])

    def is_won(self, trials: int) -> bool:
        """Ends a look: whether XLA's form is the one to use. Says when to look again (`rest`)."""
        ratio = self.ratio(trials)
        pairs = self._pairs(trials)
        is_more = _middle([xla for _, (_, xla) in pairs]) > MORE * _middle([host for (_, host), _ in pairs])
        self.scores = [*self.scores[1 - LOOKS :], ratio / (MARGIN_MORE if is_more else self.margin)]
        if 1 / CLOSE < ratio < CLOSE:
            self.rest = RESTS[min(self.count, len(RESTS) - 1)]
        else:
            self.rest = RESTS[1] if not self.count and 1 / CLEAR < ratio < CLEAR else 0
        self.count += 1
        return (self.scores[-1] if len(self.scores) < LOOKS else _middle(self.scores)) < 1

    def _pairs(self, trials: int) -> list[tuple[tuple[int, int], tuple[int, int]]]:
        """The last steps of both forms that count, side by side as they came."""
        return list(zip(self.host, self.xla))[-trials:]


def _middle(values: list[int] | list[float]) -> float:
    ordered = sorted(values)
    n = len(ordered)
    return (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
