r"""Which steps are recorded."""

from torch.profiler import ProfilerAction as ProfilerAction, schedule as _schedule


class Schedule:
    r"""Called with a step's number, says what happens in it.

    Args:
        wait (int): steps of each cycle before anything happens.
        active (int): steps of each cycle that are recorded.
        warmup (int): steps before those, in which the profiler runs and throws away what it records; default 0.
        repeat (int): cycles; 0 (default) as many as there are.
        skip_first (int): steps before the first cycle; default 0.
        skip_first_wait (int): other than 0: the first cycle does not wait; default 0.

    Raises:
        AssertionError: a number is negative, or ``active`` is 0.
    """

    def __init__(
        self, wait: int, active: int, warmup: int = 0, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
    ) -> None:
        self.wait, self.active, self.warmup, self.repeat = wait, active, warmup, repeat
        self.skip_first, self.skip_first_wait = skip_first, skip_first_wait
        self._choose = _schedule(
            wait=wait,
            warmup=warmup,
            active=active,
            repeat=repeat,
            skip_first=skip_first,
            skip_first_wait=skip_first_wait,
        )

    def __call__(self, step: int) -> ProfilerAction:
        return self._choose(step)
